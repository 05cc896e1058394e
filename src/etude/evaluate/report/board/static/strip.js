// Tokens of a segment: five bands over all of them on a canvas (mask, logprob, trainer minus sampler, advantage, version), and the text below, coloured by one.
import { colours, figure, h, sharp } from "./dom.js";

const BANDS = [["mask", "sampled"], ["logprob", "logprob"], ["gap", "trainer − sampler"], ["advantage", "advantage"], ["version", "version"]];
const BAND = 13, GAP = 3, LABEL = 108;
const AT_ONCE = 4000; // tokens in the document; more come at a press
const FULL = 3; // nats: a 5% token has full colour already

// Where each token's sampled values lie: -1 for those that were given.
export function places(segment) {
  let next = 0;
  return segment.sampled.map((sampled) => (sampled ? next++ : -1));
}

// 0 to 1 and a sign for one token in one band, null where there is nothing to say.
export function strength(band, segment, place, facts) {
  if (band === "mask") return place < 0 ? null : { size: 1, sign: 0 };
  if (place < 0) return null;
  if (band === "logprob") { const value = segment.logprobs[place]; return value === null ? { size: 1, sign: -1 } : { size: Math.min(1, -value / FULL), sign: 0 }; }
  if (band === "gap") { const value = segment.gaps?.[place]; return value === undefined || value === null ? null : { size: Math.min(1, Math.abs(value) / facts.gap), sign: Math.sign(value) }; }
  if (band === "advantage") return facts.advantage === null ? null : { size: Math.min(1, Math.abs(facts.advantage)), sign: Math.sign(facts.advantage) };
  return { size: 1, sign: 0, hue: (segment.versions[place] - facts.oldest) % 6 };
}

export function hue(band, found) {
  if (band === "version") return `c${found.hue}`;
  if (band === "mask") return "c5";
  return found.sign > 0 ? "c0" : found.sign < 0 || band === "logprob" ? "c1" : "c5";
}

export function strip(segment, number, facts) {
  const at = places(segment);
  const canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": `Segment ${number + 1}: ${segment.words.length} tokens, ${segment.logprobs.length} sampled. Arrow keys read them one by one.` });
  const words = h("p", { class: "muted reading", "aria-live": "polite" });
  const text = h("pre", { class: "tokens" });
  const element = h("div", { class: "strip" }, h("h3", {}, `Segment ${number + 1}: ${segment.words.length.toLocaleString("en")} tokens, ${segment.logprobs.length.toLocaleString("en")} sampled`), canvas, words, text);
  const bands = BANDS.filter(([key]) => key !== "gap" || segment.gaps);
  let shown = 0, marked = null, band = "logprob", width = 0;

  function draw() {
    const room = element.clientWidth - 2;
    if (room < 60) return;
    const label = room < 500 ? 0 : LABEL, colour = colours();
    const context = sharp(canvas, room, bands.length * (BAND + GAP));
    width = (room - label) / at.length;
    context.font = "11px system-ui, sans-serif";
    bands.forEach(([key, title], row) => {
      const y = row * (BAND + GAP);
      context.globalAlpha = 1;
      context.fillStyle = colour.muted;
      if (label) context.fillText(title, 0, y + BAND - 3);
      context.fillStyle = colour.line;
      context.globalAlpha = 0.5;
      context.fillRect(label, y, room - label, BAND);
      at.forEach((place, token) => {
        const found = strength(key, segment, place, facts);
        if (!found || !found.size) return;
        context.globalAlpha = key === "version" || key === "mask" ? 0.75 : 0.12 + 0.88 * found.size;
        context.fillStyle = colour[hue(key, found)];
        const left = Math.floor(label + token * width); // whole pixels: neighbours touch without a seam
        context.fillRect(left, y, Math.max(1, Math.floor(label + (token + 1) * width) - left), BAND);
      });
    });
    context.globalAlpha = 1;
    if (marked !== null) { context.strokeStyle = colour.fg; context.strokeRect(label + marked * width - 0.5, 0.5, Math.max(width, 2), bands.length * (BAND + GAP) - GAP - 1); }
  }
  function span(token) {
    const place = at[token], found = strength(band, segment, place, facts);
    const style = found && band !== "mask" ? `background:color-mix(in srgb, var(--${hue(band, found)}) ${Math.round(8 + 55 * found.size)}%, transparent)` : null;
    return h("span", { class: place < 0 ? "given" : "t", style, "data-token": token }, segment.words[token]);
  }
  function fill(upto) {
    const more = document.createDocumentFragment();
    for (; shown < upto; shown += 1) more.append(span(shown));
    text.querySelector("button")?.remove();
    text.append(more);
    if (shown < at.length) text.append(h("button", { type: "button", onclick: () => fill(Math.min(at.length, shown + AT_ONCE)) }, `${(at.length - shown).toLocaleString("en")} more tokens`));
  }
  function read(token, scroll) {
    marked = Math.max(0, Math.min(at.length - 1, token));
    const place = at[marked];
    const parts = [`token ${marked + 1}`, JSON.stringify(segment.words[marked])];
    if (place < 0) parts.push("given");
    else {
      const logprob = segment.logprobs[place];
      parts.push(`logprob ${figure(logprob)}`, `p ${figure(100 * Math.exp(logprob))}%`, `version ${segment.versions[place]}`);
      if (segment.gaps) parts.push(`trainer − sampler ${figure(segment.gaps[place])}`);
      if (facts.advantage !== null) parts.push(`advantage ${figure(facts.advantage)}`);
    }
    words.textContent = parts.join(" · ");
    if (scroll) {
      if (marked >= shown) fill(Math.min(at.length, marked + 1));
      text.querySelector(".at")?.classList.remove("at");
      const own = text.querySelector(`[data-token="${marked}"]`);
      own?.classList.add("at");
      own?.scrollIntoView({ block: "nearest" });
    }
    draw();
  }
  const under = (event) => Math.floor((event.offsetX - (element.clientWidth - 2 < 500 ? 0 : LABEL)) / width);
  canvas.addEventListener("pointermove", (event) => { if (under(event) >= 0) read(under(event), false); });
  canvas.addEventListener("click", (event) => { if (under(event) >= 0) read(under(event), true); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    read(step === Infinity ? at.length - 1 : step === -Infinity ? 0 : (marked ?? -1) + step, true);
    event.preventDefault();
  });
  text.addEventListener("click", (event) => { const token = event.target.dataset?.token; if (token !== undefined) read(Number(token), true); });
  const watch = new ResizeObserver(draw);
  watch.observe(element);
  fill(Math.min(at.length, AT_ONCE));
  return {
    element, draw, dispose: () => watch.disconnect(),
    colour: (by) => { band = by; const upto = shown; shown = 0; text.replaceChildren(); fill(upto); draw(); },
  };
}

export { BANDS };
