// Makes elements of the page. What comes from a training is text: it becomes a text node, never markup.

/** Characters below which a text in a table stays on one line. */
const SHORT = 24;

/** Return an element; children are elements, texts and numbers, and what is missing is left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== "") made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== ""));
  return made;
}

/** Return a link in a tab of its own; an address that is not of the web, such as `javascript:`, is shown as text. */
export function link(text, address) {
  const url = URL.canParse(address, location.href) ? new URL(address, location.href) : undefined;
  if (!["http:", "https:"].includes(url?.protocol)) return element("span", {}, `${text}: ${address}`);
  return element("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** Return a table: names of its columns, rows of cells, and for each row what stands below it, over its whole width. */
export function table(columns, rows, notes = []) {
  const head = element("tr", {}, columns.map((column) => element("th", { scope: "col" }, column)));
  const isShort = (cell) => typeof cell === "string" && cell.length < SHORT;
  const body = rows.flatMap((cells, place) => [
    element("tr", {}, cells.map((cell) => element("td", { class: isShort(cell) ? "short" : "" }, cell))),
    notes[place]?.length ? element("tr", { class: "note" }, element("td", { colspan: columns.length }, notes[place])) : "",
  ]);
  // A table that is wider than the page scrolls, also by the keyboard.
  return element(
    "div",
    { class: "wide", tabindex: 0, role: "group", "aria-label": columns.join(", ") },
    element("table", {}, element("thead", {}, head), element("tbody", {}, body.filter(Boolean))),
  );
}

/** Return names and values, in two columns; a value that is missing is left out with its name. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return element("dl", {}, known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}
