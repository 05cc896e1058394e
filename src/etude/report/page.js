// The page's only script: shows one document of the corpus at a time, another at each press. Without it all can be unfolded.
const button = document.getElementById("another");
const all = [...document.querySelectorAll("#documents > details")];
let shown = 0;
function show(number) {
  shown = number;
  all.forEach((one, place) => { one.hidden = place !== number; one.open = place === number; });
}
if (button && all.length > 1) {
  button.hidden = false;
  button.addEventListener("click", () => show((shown + 1 + Math.floor(Math.random() * (all.length - 1))) % all.length));
  show(Math.floor(Math.random() * all.length));
}
