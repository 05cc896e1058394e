// Every metric of every stage over its steps, with what happened meanwhile as dashed marks.
import { h } from "./dom.js";
import { plot } from "./plot.js";
import { json } from "./source.js";

// Drawn in one chart because they are read against each other.
const TOGETHER = [
  ["reward and its parts", /^reward(_|$)/], ["staleness, versions", /^staleness_/], ["seconds of a step", /^(wait_s|train_s|train_cpu_s|sync_s|held_s)$/],
  ["seconds of a rollout", /^rollout_.*_s$/],
];
const FIRST = ["pass_rate", "reward and its parts", "loss", "entropy", "uniform_groups", "staleness, versions"];

export function curves() {
  let main = null, found = null, stage = null, log = false, wanted = "", known = null, drawn = [];
  const clear = () => { drawn.forEach((one) => one.dispose()); drawn = []; };

  function charts() {
    const { steps, values } = found.stages[stage];
    const named = new Map();
    for (const name of Object.keys(values)) {
      const [title] = TOGETHER.find(([, pattern]) => pattern.test(name)) ?? [name];
      named.set(title, [...(named.get(title) ?? []), name]);
    }
    const rank = (title) => (FIRST.indexOf(title) + 1 || FIRST.length + 1);
    return [...named].filter(([title, names]) => [title, ...names].some((name) => name.includes(wanted)))
      .sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b))
      .map(([title, names]) => ({ title: title.replaceAll("_", " "), lines: names.map((name) => ({ name, xs: steps, ys: values[name] })) }));
  }
  function draw() {
    clear();
    const stages = Object.keys(found.stages);
    if (!stages.length) { main.replaceChildren(h("h1", {}, "Curves"), h("p", { class: "muted" }, "No metric has been written yet.")); return; }
    stage = stages.includes(stage) ? stage : stages.includes("rl") ? "rl" : stages[0];
    const marks = found.marks.filter((mark) => mark.stage === stage).map((mark) => ({ x: mark.step, text: mark.text }));
    drawn = charts().map((one) => plot({ ...one, marks, log }));
    const grid = h("div", { class: "charts" }, drawn.map((one) => one.element));
    main.querySelector(".charts")?.remove();
    if (known !== stages.join()) main.replaceChildren(h("h1", {}, "Curves"), tools(stages));
    known = stages.join();
    main.append(grid);
    drawn.forEach((one) => one.draw());
  }
  function tools(stages) {
    return h("div", { class: "tools" },
      h("label", {}, "Stage ", h("select", { onchange: (event) => { stage = event.target.value; draw(); } }, stages.map((name) => h("option", { value: name, selected: name === stage }, name)))),
      h("label", {}, "Metric ", h("input", { type: "search", placeholder: "any", oninput: (event) => { wanted = event.target.value.trim(); draw(); } })),
      h("label", {}, h("input", { type: "checkbox", onchange: (event) => { log = event.target.checked; draw(); } }), " log scale"));
  }
  return {
    show: async (into) => { main = into; found = await json("/api/curves"); draw(); },
    news: async (kinds) => {
      if (kinds.includes("curves")) { found = await json("/api/curves"); draw(); }
      if (kinds.includes("colours")) drawn.forEach((one) => one.draw());
    },
    leave: clear,
  };
}
