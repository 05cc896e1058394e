// Every attempt of the run as typed arrays, in the form that report/board/columns.py writes; news are merged into them.
import { buffer, holds, served } from "./source.js";

const VIEWS = { i4: Int32Array, f4: Float32Array };
const FIRST = 1024;

export class Table {
  constructor() { this.generation = 0; this.length = 0; this.arrays = {}; this.words = {}; }

  // Fetches what changed since the last time; true if something did.
  async load() {
    return this.take(await buffer(`/api/rollouts?since=${this.generation}`));
  }

  take(buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    if (head.generation < this.generation) { // the board was started anew: begin anew too
      this.generation = this.length = 0;
      this.words = {};
      return true;
    }
    for (const [name, [first, words]] of Object.entries(head.words)) {
      const known = (this.words[name] ??= []);
      words.forEach((word, place) => { known[first + place] = word; });
    }
    const columns = head.columns.map(({ name, type, at }) => [name, new VIEWS[type](buffer, 4 + size + at, head.rows)]);
    const rows = columns[0][1];
    for (const [name, values] of columns.slice(1)) {
      const own = this.room(name, values.constructor, head.total);
      for (let i = 0; i < rows.length; i += 1) own[rows[i]] = values[i];
    }
    this.length = head.total;
    this.generation = head.generation;
    if (!served) this.arrays.here = Float32Array.from({ length: this.length }, (_, row) => Number(holds(`rollout/${row}`)));
    return rows.length > 0;
  }

  room(name, View, total) {
    const own = this.arrays[name];
    if (own && own.length >= total) return own;
    let size = own ? own.length : FIRST;
    while (size < total) size *= 2;
    const wider = new View(size);
    if (own) wider.set(own);
    return (this.arrays[name] = wider);
  }

  // A word, a number, or null where nothing is known.
  get(name, row) {
    const value = this.arrays[name][row];
    if (name in this.words) return this.words[name][value];
    return Number.isNaN(value) ? null : value;
  }

  has(name) { return name in this.arrays; }
}
