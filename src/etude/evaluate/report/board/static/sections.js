// The report's own sections, made by the server (or written into this file) with the same functions, and how far each stage is.
import { figure, fragment, h } from "./dom.js";
import { documents } from "./documents.js";
import { plot } from "./plot.js";
import { json } from "./source.js";

const CORPUS = ["Corpus", "Pretraining", "Perplexity", "Long context", "Draft layers"];
const PARETO = ["Score against cost", "On the same tasks"];
const WATCHED = ["pass_rate", "reward", "loss", "entropy", "uniform_groups", "staleness_max"]; // of the stage at work, as far as it has them

export const overview = (board) => page(board, (name) => !CORPUS.includes(name) && !PARETO.includes(name), null);
export const pareto = (board) => page(board, (name) => PARETO.includes(name), "Pareto");
export const corpus = (board) => page(board, (name) => CORPUS.includes(name), "Corpus");
const EMPTY = {
  Overview: "No stage has finished yet: curves and rollouts show what there is.",
  Pareto: "There is nothing to draw yet: score against cost needs a bench of two policies or efforts (etude bench run SUITE --policy … --policy …).",
  Corpus: "This run has no corpus of its own.",
};

// Which page a section stands on, by the anchor of its heading.
export function pageOf(board, anchor) {
  const name = Object.keys(board.run.sections).find((one) => anchorOf(one) === anchor);
  return !name ? null : CORPUS.includes(name) ? "corpus" : PARETO.includes(name) ? "pareto" : "overview";
}
const anchorOf = (name) => name.toLowerCase().replaceAll(" ", "-");

function page(board, chosen, title) {
  let main = null, drawn = [];
  const first = title === null;
  const stages = h("div", {}), now = h("div", {}), warned = h("div", {});
  const clear = () => { drawn.forEach((one) => one.dispose()); drawn = []; };
  async function draw() {
    const found = Object.entries(board.run.sections).filter(([name]) => chosen(name));
    const lead = first ? [h("h1", {}, board.run.title), warned, fragment(board.run.lead), stages, now] : [h("h1", {}, title)];
    const links = h("nav", { class: "contents", "aria-label": "Contents" }, found.map(([name]) => h("a", { href: `#${anchorOf(name)}` }, name)));
    main.replaceChildren(...lead, found.length > 1 ? links : "", ...found.flatMap(([name, html]) => [h("h2", { id: anchorOf(name) }, name), fragment(html)]));
    documents(main);
    if (!found.length) main.append(h("p", { class: "muted" }, EMPTY[title ?? "Overview"]));
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
