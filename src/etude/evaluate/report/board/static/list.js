// A list of any length: only the rows in sight are in the document. One row is marked; keys move the mark.
import { h } from "./dom.js";

const BEYOND = 8; // rows drawn above and below what is seen

export class VirtualList {
  // draw(place) gives a row's element; open(place) is Enter or a click; rowHeight() in CSS pixels, which may change with the width.
  constructor({ label, draw, open, rowHeight, moved = () => {} }) {
    Object.assign(this, { draw, open, rowHeight, moved, count: 0, marked: 0 });
    this.rows = h("div", { class: "rows-in-sight" });
    this.space = h("div", { class: "list-space" }, this.rows);
    this.element = h("div", {
      class: "list", role: "listbox", tabindex: "0", "aria-label": label, onscroll: () => this.show(), onkeydown: (event) => this.key(event),
    }, this.space);
    this.watch = new ResizeObserver(() => this.show());
    this.watch.observe(this.element);
  }

  dispose() { this.watch.disconnect(); }

  set(count) {
    this.count = count;
    this.marked = Math.min(this.marked, Math.max(0, count - 1));
    this.show();
  }

  show() {
    const height = this.rowHeight();
    this.space.style.height = `${this.count * height}px`;
    const first = Math.max(0, Math.floor(this.element.scrollTop / height) - BEYOND);
    const last = Math.min(this.count, Math.ceil((this.element.scrollTop + this.element.clientHeight) / height) + BEYOND);
    this.rows.style.transform = `translateY(${first * height}px)`;
    const drawn = [];
    for (let place = first; place < last; place += 1) {
      const row = this.draw(place);
      row.id = `row-${place}`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(place === this.marked));
      row.setAttribute("aria-posinset", place + 1);
      row.setAttribute("aria-setsize", this.count);
      row.style.height = `${height}px`;
      row.addEventListener("click", () => { this.mark(place); this.open(place); });
      drawn.push(row);
    }
    this.rows.replaceChildren(...drawn);
    if (this.count) this.element.setAttribute("aria-activedescendant", `row-${this.marked}`);
  }

  mark(place) {
    if (!this.count) return;
    this.marked = Math.max(0, Math.min(this.count - 1, place));
    const height = this.rowHeight();
    const top = this.marked * height;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    if (top + height > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + height - this.element.clientHeight;
    this.moved(this.marked);
    this.show();
  }

  // Returns whether the key was meant for the list.
  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 1);
    const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.mark(steps[event.key] === Infinity ? this.count - 1 : steps[event.key] === -Infinity ? 0 : this.marked + steps[event.key]);
    else if (event.key === "Enter" && this.count) this.open(this.marked);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
