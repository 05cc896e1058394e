// Elements without a library: h("p", {class: "muted"}, "words"). Text is always text; markup comes from the server's fragments alone.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in PROPERTIES) element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
const PROPERTIES = { value: 1, checked: 1, hidden: 1, textContent: 1, disabled: 1, open: 1 };

// A fragment that the server made with every text escaped.
export function fragment(html) {
  const holder = h("div", { class: "fragment" });
  holder.innerHTML = html;
  return holder;
}

export function table(titles, rows) {
  const cell = (value) => (value instanceof Node ? value : document.createTextNode(value ?? ""));
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value) => h("td", {}, cell(value))))))));
}

// Few characters for any number; a gap for what is not known.
export function figure(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size !== 0 && size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(digits)) || 0); // no -0
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) { value /= 1000; place += 1; }
  return `${figure(value)} ${units[place]}`;
}

// The page's colours as they are now, light or dark.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["bg", "fg", "muted", "line", "card", "good", "bad", "c0", "c1", "c2", "c3", "c4", "c5"]
    .map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// A canvas of so many CSS pixels, sharp on any screen; returns its context, scaled.
export function sharp(canvas, width, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1); // beyond two nobody sees it and memory squares
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
