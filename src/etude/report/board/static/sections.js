// The report's own sections, made by the server with the same functions as report.html, and how far each stage is.
import { figure, fragment, h, json } from "./dom.js";
import { plot } from "./plot.js";

const CORPUS = ["Corpus", "Pretraining", "Perplexity", "Long context", "Draft layers"];
const ELSEWHERE = ["Rollouts to read"]; // the browser shows them all
const WATCHED = ["pass_rate", "reward", "loss", "entropy", "uniform_groups", "staleness_max"]; // of the stage at work, as far as it has them

export const overview = (board) => page(board, (name) => !CORPUS.includes(name) && !ELSEWHERE.includes(name), true);
export const corpus = (board) => page(board, (name) => CORPUS.includes(name), false);

function page(board, chosen, first) {
  let main = null, drawn = [];
  const stages = h("div", {}), now = h("div", {}), warned = h("div", {});
  const clear = () => { drawn.forEach((one) => one.dispose()); drawn = []; };
  async function draw() {
    const found = Object.entries(board.run.sections).filter(([name]) => chosen(name));
    const lead = first ? [h("h1", {}, `Etude: ${board.run.title}`), fragment(board.run.lead), warned, stages, now] : [h("h1", {}, "Corpus")];
    const links = h("nav", { class: "contents", "aria-label": "Contents" }, found.map(([name], place) => h("button", {
      type: "button", onclick: () => main.querySelector(`#section-${place}`).scrollIntoView(),
    }, name)));
    main.replaceChildren(...lead, found.length > 1 ? links : "", ...found.flatMap(([name, html], place) => [h("h2", { id: `section-${place}` }, name), fragment(html)]));
    if (!found.length) main.append(h("p", { class: "muted" }, first ? "No stage has finished yet: curves and rollouts show what there is." : "This run has no corpus of its own."));
    if (first) await Promise.all([progress(), warn()]);
  }
  async function warn() {
    const open = new Set([...warned.querySelectorAll("details[open] summary")].map((one) => one.textContent));
    warned.replaceChildren(fragment((await json("/api/advisories")).html));
    for (const one of warned.querySelectorAll("summary")) one.parentElement.open = open.has(one.textContent);
  }
  async function progress() {
    const { progress: found, marks, stages: curves } = await json("/api/curves");
    const rows = Object.entries(found).filter(([, at]) => at.total).map(([stage, at]) => h("div", { class: "stage" },
      h("span", {}, stage), h("progress", { max: at.total, value: at.done, "aria-label": `${stage}: ${at.done} of ${at.total}` }),
      h("span", { class: "muted" }, `${figure(at.done)} of ${figure(at.total)}`)));
    const notes = marks.slice(-6).reverse().map((mark) => h("li", {}, h("b", {}, mark.stage), ` ${mark.text}`));
    stages.replaceChildren(...(rows.length ? [h("details", { class: "stages", open: !board.run.sections["What it cost"] || rows.some((row) => row.querySelector("progress").position < 1) },
      h("summary", {}, "Stages and what they last said"), h("div", { class: "bars" }, rows), h("ul", { class: "notes" }, notes))] : []));
    atWork(found, curves);
  }
  // What the newest stage that has not ended is doing.
  function atWork(found, curves) {
    clear();
    const stage = Object.keys(curves).filter((name) => found[name] && found[name].done < found[name].total).at(-1);
    const names = stage ? WATCHED.filter((name) => curves[stage].values[name]) : [];
    drawn = names.map((name) => plot({ title: name.replaceAll("_", " "), lines: [{ name, xs: curves[stage].steps, ys: curves[stage].values[name] }] }));
    now.replaceChildren(...(names.length ? [h("h2", {}, `At work: ${stage}`), h("div", { class: "charts" }, drawn.map((one) => one.element))] : []));
    drawn.forEach((one) => one.draw());
  }
  return {
    show: async (into) => { main = into; await draw(); },
    news: async (kinds) => {
      if (kinds.includes("pages")) await draw();
      else if (first && (kinds.includes("curves") || kinds.includes("colours"))) await Promise.all([progress(), warn()]);
    },
    leave: clear,
  };
}
