// Pointing at a chart shows the values of the nearest step below it.
for (const chart of document.querySelectorAll("svg.chart")) {
  const { percent, series } = JSON.parse(chart.dataset.series);
  const readout = chart.parentElement.querySelector(".readout");
  const cursor = chart.querySelector(".cursor");
  const line = cursor.querySelector("line");
  const dots = series.map((_, number) => {
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    dot.setAttribute("r", 4);
    dot.style.fill = `var(--c${number % 5})`;
    cursor.append(dot);
    return dot;
  });
  const shown = (value) =>
    percent ? `${(100 * value).toFixed(1)} %` : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });

  chart.addEventListener("pointermove", (event) => {
    const x = ((event.clientX - chart.getBoundingClientRect().left) / chart.clientWidth) * chart.viewBox.baseVal.width;
    const distance = (point) => Math.abs(point[2] - x);
    const all = series.flatMap(({ points }) => points);
    const [step, , at] = all.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    cursor.style.display = "inline";
    readout.replaceChildren(`step ${Math.round(step).toLocaleString("en")}`);
    series.forEach(({ name, points, intervals }, number) => {
      const place = points.findIndex((point) => point[0] === step);
      dots[number].style.display = place < 0 ? "none" : "inline";
      if (place < 0) return;
      const [, value, , y] = points[place];
      dots[number].setAttribute("cx", at);
      dots[number].setAttribute("cy", y);
      const strong = document.createElement("b");
      strong.textContent = shown(value);
      const range = intervals.length ? ` [${intervals[place].map(shown).join(", ")}]` : "";
      readout.append(" · ", series.length > 1 ? `${name} ` : "", strong, range);
    });
  });
  chart.addEventListener("pointerleave", () => {
    cursor.style.display = "none";
    readout.replaceChildren();
  });
}
