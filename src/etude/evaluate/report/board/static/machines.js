// What attempts waited for and which faults they met; how weights travelled; what the auditor read.
import { bytes, figure, h, table } from "./dom.js";
import { plot } from "./plot.js";
import { json } from "./source.js";

const PHASES = { create_s: "until its sandbox was there", policy_s: "waiting for the policy", tools_s: "in tools", grade_s: "until graded", seconds: "in all" };

function page(kinds, draw) {
  return () => {
    let main = null, drawn = [];
    const make = async () => {
      const found = await draw(drawn = clear(drawn));
      main.replaceChildren(...found);
      drawn.forEach((one) => one.draw());
    };
    return {
      show: async (into) => { main = into; await make(); },
      news: async (news) => { if (news.some((kind) => kinds.includes(kind) || kind === "colours")) await make(); },
      leave: () => { drawn = clear(drawn); },
    };
  };
}
const clear = (drawn) => { drawn.forEach((one) => one.dispose()); return []; };

export const fleet = page(["rollouts"], async (drawn) => {
  const found = await json("/api/fleet");
  const rows = Object.entries(PHASES).filter(([name]) => found.phases[name]).map(([name, title]) => {
    const at = found.phases[name];
    return [title, figure(at.count), figure(at.mean), ...["0.5", "0.9", "0.99", "1.0"].map((q) => figure(at.quantiles[q])), bars(at, title)];
  });
  drawn.push(...overTime(found.time));
  const sandbox = Object.entries(found.sandbox).filter(([, value]) => value !== "");
  return [
    h("h1", {}, "Sandboxes"),
    ...(drawn.length ? [h("div", { class: "charts" }, drawn.map((one) => one.element)), h("p", { class: "muted" }, `Over seconds since the first began; ${figure(found.time.known)} of ${figure(found.attempts)} attempts say when they did.`)] : [h("p", { class: "muted" }, "No attempt says when it began: the run is of an older version.")]),
    h("h2", {}, "By host"),
    found.hosts.length ? table(["host", "sandboxes", "seconds to be there: median", "90%", "longest", "tries repeated"], found.hosts.map((row) => [row.host || "this machine", figure(row.attempts), ...row.create_s.map((value) => figure(value)), figure(row.repeated)])) : h("p", { class: "muted" }, "No attempt says how long its sandbox took."),
    h("h2", {}, "Seconds of an attempt"),
    rows.length ? table(["", "known of", "mean", "median", "90%", "99%", "longest", "up to the 99% quantile"], rows) : h("p", { class: "muted" }, "No attempt has said yet how long it took."),
    h("h2", {}, "Infra faults by class"),
    h("p", {}, found.repeated ? `${figure(found.repeated)} tries were repeated after a fault of ours; none was scored.` : "No try had to be repeated."),
    found.faults.length ? table(["class", "tries repeated", "attempts made anew"], found.faults.map((one) => [one.class, figure(one.repeated), figure(one.given_up)])) : found.repeated ? h("p", { class: "muted" }, "The run is of a version that did not record their classes.") : "",
    ...(found.last.length ? [h("h2", {}, "The last attempts given up"), table(["group or task", "reason"], found.last.map((one) => [figure(one.of), one.reason]))] : []),
    h("h2", {}, "What they are"),
    sandbox.length ? table(["", ""], sandbox.map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)])) : h("p", { class: "muted" }, "Not said by this run, or not yet: a run's own bench says it when it is done."),
  ];
});

// How many attempts were at work, and how many began, from the first on.
function overTime(time) {
  if (!time) return [];
  const own = (title, name) => {
    const lines = Object.entries(time.sources).map(([source, at]) => ({ name: source, xs: at[name].map((_, n) => Math.round(n * time.moment_s)), ys: at[name] }));
    return plot({ title, lines, x: "second" });
  };
  return [own("Attempts at work", "live"), own(`Sandboxes created in ${figure(time.moment_s)} s`, "began")];
}

function bars(at, title) {
  const most = Math.max(1, ...at.counts);
  return h("span", { class: "bars-small", role: "img", "aria-label": `${title}: histogram in bins of ${figure(at.width)} seconds` },
    at.counts.map((count, n) => h("i", { style: `height:${count ? Math.max(6, (100 * count) / most) : 0}%`, title: `${figure(n * at.width)} to ${figure((n + 1) * at.width)} s: ${figure(count)}` })));
}

export const weights = page(["rollouts", "curves"], async (drawn) => {
  const [found, { stages }] = await Promise.all([json("/api/weights"), json("/api/curves")]);
  const curves = stages.rl ?? { steps: [], values: {} };
  const own = (title, names, log = false) => {
    const lines = names.filter((name) => curves.values[name]).map((name) => ({ name, xs: curves.steps, ys: curves.values[name] }));
    if (lines.length) drawn.push(plot({ title, lines, log }));
  };
  own("A delta's bytes over an anchor's", ["delta_ratio"]);
  own("Bytes sent", ["delta_bytes"]);
  own("Seconds from trained to served, and that the trainer waited for it", ["sync_s", "held_s"]);
  own("Versions that regions are behind home", Object.keys(curves.values).filter((name) => /^region_.*_behind$/.test(name)));
  own("Sampler against trainer, mean k3", ["drift_k3"], true);
  const counts = found.sampled_by_newest;
  if (counts.length) drawn.push(plot({ title: "Tokens of attempts, by the newest version that sampled in them", x: "version", lines: [{ name: "tokens", xs: counts.map((_, n) => n), ys: counts }] }));
  const anchors = found.entries.filter((entry) => entry.base === null);
  const newest = found.entries.slice(-200).reverse();
  return [
    h("h1", {}, "Weight sync"),
    h("p", {}, found.entries.length ? `${figure(found.entries.length)} states in the store: ${figure(anchors.length)} ${anchors.length === 1 ? "anchor" : "anchors"}, ${figure(found.entries.length - anchors.length)} ${found.entries.length - anchors.length === 1 ? "delta" : "deltas"}; ${bytes(found.entries.reduce((sum, entry) => sum + entry.bytes, 0))} where full copies would take ${bytes(found.entries.reduce((sum, entry) => sum + entry.raw_bytes, 0))}.` : "This run's folder holds no weights: none were published, or rl.weight_store is elsewhere (etude weights show STORE)."),
    h("div", { class: "charts" }, drawn.map((one) => one.element)),
    newest.length ? table(["version", "kind", "from", "bytes", "share of raw"], newest.map((entry) => [figure(entry.version), entry.base === null ? "anchor" : "delta", entry.base === null ? "" : figure(entry.base), bytes(entry.bytes), `${figure((100 * entry.bytes) / entry.raw_bytes)}%`])) : "",
  ];
});

const READ = { flagged: "bad", clean: "good", unread: "open" };

export function cheats(board) {
  return page(["rollouts", "pages"], async () => {
    const found = await json("/api/audit");
    if (!found.files.length) {
      return [h("h1", {}, "Cheat desk"), h("p", {}, "Nobody has audited this run."), h("p", { class: "muted" }, "etude bench audit DIR reads a sample of a bench's passes and all surprising ones; what it finds is listed here.")];
    }
    const order = Object.keys(READ);
    const rows = [...found.rows].sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
    const counts = order.map((status) => `${rows.filter((row) => row.status === status).length} ${status}`);
    return [
      h("h1", {}, "Cheat desk"), h("p", {}, `${figure(rows.length)} passes of ${found.files.join(", ")}: ${counts.join(", ")}. A flag convicts nobody: whoever trips one is looked at.`),
      h("div", { class: "desk" }, table(["", "pass", "flags", "surprising", "judge"], rows.map((row) => [h("b", { class: READ[row.status] ?? "open" }, row.status ?? "?"), link(board.data, row), flags(row), (row.surprising ?? []).join(", "), verdict(row)]))),
    ];
  })(board);
}

// The attempt that a finding is of, as a link where the run has it.
function link(data, row) {
  const words = `${row.key ?? ""} ${row.task_id ?? ""} pass ${row.attempt ?? "?"}`;
  for (let n = 0; n < data.length; n += 1) {
    if (data.arrays.member[n] === row.attempt && data.get("task", n) === row.task_id && data.get("policy", n) === row.key) return h("a", { href: `#/rollout/${n}` }, words);
  }
  return words;
}
function flags(row) {
  const found = row.flags ?? [];
  return found.length ? h("ul", { class: "flags" }, found.map((flag) => h("li", {}, h("b", {}, flag.wire ?? String(flag)), flag.where ? ` ${flag.where}: ` : " ", h("code", {}, flag.saw ?? "")))) : row.unread ? `not read: ${row.unread}` : "";
}
function verdict(row) {
  if (row.judged) return `${row.judged}${row.reason ? `: ${row.reason}` : ""}`;
  return row.silent ? `silent: ${row.silent}` : "not asked";
}
