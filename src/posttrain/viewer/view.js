
// A click on a chart opens the step that it shows.
for (const charts of document.querySelectorAll("[data-steps-at]")) {
  charts.addEventListener("click", (event) => {
    const chart = event.target.closest("svg.chart");
    const shown = chart && chart.parentElement.querySelector(".readout").textContent.match(/^step ([\d,]+)/);
    if (shown) location.href = charts.dataset.stepsAt + shown[1].replaceAll(",", "");
  });
}

// Keys, unless the user is typing: the arrows turn pages, j and k go from one item to the next, / searches, ? explains.
const items = () => [...document.querySelectorAll(".rollouts > .rollout, article.task, tbody tr")].filter((item) => !item.closest("dialog, .rollout table, details:not([open])") && !(item.matches("article") && item.querySelector(".rollouts")));
let at = -1;
const go = (by) => {
  const all = items();
  if (!all.length) return;
  at = Math.max(0, Math.min(all.length - 1, at + by));
  for (const item of document.querySelectorAll(".at")) item.classList.remove("at");
  all[at].classList.add("at");
  all[at].scrollIntoView({ block: "nearest" });
};
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const rel = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  if (rel) document.querySelector(`a[rel=${rel}]`)?.click();
  else if (event.key === "j" || event.key === "k") go(event.key === "j" ? 1 : -1);
  else if (event.key === "Enter" && !event.target.closest("a, button, summary")) document.querySelector(".at a")?.click();
  else if (event.key === "?") document.querySelector("dialog.keys").showModal();
  else if (event.key === "/") {
    const field = document.querySelector("input[name=text]");
    event.preventDefault();
    if (field) field.select();
    else if (document.body.dataset.search) location.href = document.body.dataset.search;
  }
});

// The next part of a long group is added to the page.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-more]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  try {
    const text = await (await fetch(link.href)).text();
    const page = new DOMParser().parseFromString(text, "text/html");
    document.querySelector(".rollouts").append(...page.querySelector(".rollouts").children);
    const next = page.querySelector("a[data-more]");
    if (next) link.replaceWith(next);
    else link.parentElement.remove();
  } catch {
    location.href = link.href;
  }
});

// A page of a run in progress shows a notice when there are new steps.
const watched = document.body.dataset.watch;
if (watched) {
  const timer = setInterval(async () => {
    try {
      const { steps, finished } = await (await fetch(watched)).json();
      if (steps === Number(document.body.dataset.steps) && !finished) return;
      document.querySelector(".fresh").hidden = false;
      clearInterval(timer);
    } catch {
      clearInterval(timer); // the viewer has been closed
    }
  }, 5000);
}
