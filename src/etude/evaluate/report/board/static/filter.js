// What the filter box means: `outcome<1 tool:edit summaries>=1 -end:done parser`. Pure; tested in tests/evaluate/report.
const OTHER_NAMES = { category: "level", length: "tokens", tool: "tools", summary: "summaries", version: "newest", adv: "advantage", task_id: "task" };
const SHORT = { solved: "outcome>=1", failed: "outcome<1", kept: "file!=", repeated: "tries>1", here: "here>0" }; // here: held in full by a file that stands alone
const SOUGHT = ["task", "verdict", "end", "tools", "policy", "faults"]; // where a bare word is looked for
const TERM = /^([a-z_]+)(>=|<=|!=|:|=|>|<)(.*)$/i;
const COMPARE = {
  ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b,
  "=": (a, b) => a === b, ":": (a, b) => a === b, "!=": (a, b) => a !== b,
};

// {test(row) -> boolean, error}: with an error everything passes, and the page says what is wrong.
export function compile(text, data) {
  const tests = [];
  for (const piece of text.trim().split(/\s+/).filter(Boolean)) {
    const negated = piece.startsWith("-") && piece.length > 1;
    const bare = negated ? piece.slice(1) : piece;
    const made = term(SHORT[bare.toLowerCase()] ?? bare, data);
    if (made.error) return { test: () => true, error: made.error };
    tests.push(negated ? (row) => !made.test(row) : made.test);
  }
  return { test: (row) => tests.every((test) => test(row)), error: null };
}

function term(piece, data) {
  const found = TERM.exec(piece);
  if (!found) return { test: anywhere(piece, data) };
  const name = OTHER_NAMES[found[1].toLowerCase()] ?? found[1].toLowerCase();
  const [, , sign, value] = found;
  if (!data.has(name)) return { error: unknown(found[1], data) };
  if (name in data.words) return words(name, sign, value, data);
  const number = Number(value);
  if (value === "" || Number.isNaN(number)) return { error: `${name} is a number, not “${value}”` };
  const column = data.arrays[name];
  const wanted = column instanceof Float32Array ? Math.fround(number) : number;
  return { test: (row) => !Number.isNaN(data.arrays[name][row]) && COMPARE[sign](data.arrays[name][row], wanted) };
}

function words(name, sign, value, data) {
  if (sign.includes("<") || sign.includes(">")) return { error: `${name} is a word: use : (holds), = (is) or != (is not)` };
  const wanted = value.toLowerCase();
  const fits = {
    ":": (word) => word.toLowerCase().includes(wanted), "=": (word) => word.toLowerCase() === wanted,
    "!=": (word) => word.toLowerCase() !== wanted,
  }[sign];
  return { test: mask(name, fits, data) };
}

// A word is judged once, however many rows have it.
function mask(name, fits, data) {
  const known = [];
  return (row) => {
    const place = data.arrays[name][row];
    return (known[place] ??= fits(data.words[name][place]));
  };
}

function anywhere(piece, data) {
  const wanted = piece.toLowerCase();
  const masks = SOUGHT.filter((name) => name in data.words).map((name) => mask(name, (word) => word.toLowerCase().includes(wanted), data));
  return (row) => masks.some((test) => test(row));
}

function unknown(name, data) {
  const names = [...Object.keys(data.arrays), ...Object.keys(OTHER_NAMES)].sort();
  const near = names.filter((other) => distance(name.toLowerCase(), other) <= allowed(Math.min(name.length, other.length)));
  return near.length ? `no field ${name}; did you mean ${near.join(" or ")}?` : `no field ${name}; the fields are ${names.join(", ")}`;
}

// Keystrokes that may be wrong in a word of this length; as in recipe/spelling.py.
function allowed(length) {
  return length >= 10 ? 3 : length >= 6 ? 2 : length >= 3 ? 1 : 0;
}

// Levenshtein's.
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1]));
    row = next;
  }
  return row[b.length];
}
