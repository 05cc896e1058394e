// Where a page's answers come from: the board's server, or this very file (`etude report RUN`), which holds the same answers packed.
const own = document.getElementById("held");
const held = own ? JSON.parse(own.textContent) : null;
own?.remove();

export const served = held === null;

// What is said of a file that stands alone: {run, whole: attempts held in full, attempts: of so many}.
export const still = served ? null : JSON.parse(held.still);

// Title, lead and sections as the file has them in plain markup, for a reader without scripts.
const markup = served ? null : {
  lead: document.querySelector("[data-part=lead]").innerHTML,
  sections: Object.fromEntries([...document.querySelectorAll("section[data-name]")].map((one) => [one.dataset.name, one.querySelector(".fragment").innerHTML])),
};

export const holds = (what) => served || what in held.packed;

// An answer as an object. Throws with the server's own words.
export async function json(path) {
  if (!served) {
    const found = JSON.parse(new TextDecoder().decode(await unpacked(path)));
    return path === "/api/run" ? { ...markup, ...found } : found;
  }
  const answer = await fetch(path);
  const kind = answer.headers.get("Content-Type") ?? "";
  const body = kind.startsWith("application/json") ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Error(body.error ?? `${path}: ${answer.status}`);
  return body;
}

// An answer as bytes.
export async function buffer(path) {
  if (!served) return unpacked(path.replace(/\?.*/, ""));
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${(await answer.text()).trim()}`);
  return answer.arrayBuffer();
}

// base64 of gzip, as `board/held.py` writes it.
async function unpacked(path) {
  const text = held.packed[path.replace("/api/", "")];
  if (text === undefined) throw new Error(`this file does not hold ${path}`);
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
