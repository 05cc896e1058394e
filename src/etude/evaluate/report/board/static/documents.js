// A button that shows one document of the corpus at a time, another at each press. Without scripts all can be unfolded.
export function documents(place) {
  const button = place.querySelector("#another");
  const all = [...place.querySelectorAll("#documents > details")];
  if (!button || all.length < 2) return;
  let shown = 0;
  const show = (number) => {
    shown = number;
    all.forEach((one, n) => { one.hidden = n !== number; one.open = n === number; });
  };
  button.hidden = false;
  button.addEventListener("click", () => show((shown + 1 + Math.floor(Math.random() * (all.length - 1))) % all.length));
  show(Math.floor(Math.random() * all.length));
}
