// Small tools of every part of the page: texts, elements, shapes, focus. Nothing here knows what is shown.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const MOST_LETTERS = 16; // of a label in a picture

export function bytesText(bytes) {
  let size = Number(bytes), unit = 0;
  while (size >= 1024 && unit + 1 < UNITS.length) { size /= 1024; unit += 1; }
  return (unit ? size.toFixed(1) : String(size)) + " " + UNITS[unit];
}

export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function quoted(name) {
  return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

// The middle goes: ids of one source often begin alike.
export function shortened(name) {
  return name.length <= MOST_LETTERS ? name : `${name.slice(0, MOST_LETTERS / 2 - 2)}…${name.slice(1 - MOST_LETTERS / 2)}`;
}

export function element(tag, parent, properties = {}, attributes = {}) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

export function shape(tag, parent, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

// A table that scrolls by itself, also with the keyboard, where it is wide. The first column names its rows; the class
// "text" is for cells that may take several lines, and a column without a class holds numbers.
export function table(parent, caption, columns, rows) {
  const wide = element("div", parent, {className: "wide", tabIndex: 0}, {role: "group", "aria-label": caption});
  const made = element("table", wide);
  const head = element("tr", element("thead", made));
  for (const [title, className = ""] of columns) element("th", head, {textContent: title, className}, {scope: "col"});
  const body = element("tbody", made);
  for (const row of rows) {
    const line = element("tr", body);
    row.forEach((cell, place) => {
      const className = columns[place][1] || "";
      const made = place ? element("td", line, {className}) : element("th", line, {className}, {scope: "row"});
      made.append(cell ?? "");
    });
  }
  return wide;
}

// A table that is drawn when somebody opens it: most tables are long, and most are never opened.
export function tableOnDemand(parent, summary, caption, columns, rowsOf) {
  const details = element("details", parent);
  element("summary", details, {textContent: summary});
  details.addEventListener("toggle", () => {
    if (!details.querySelector("table")) table(details, caption, columns, rowsOf());
  });
  return details;
}

// Does something when a reader comes near an element: what nobody scrolls to need not be made.
export function onceNear(part, act) {
  const observer = new IntersectionObserver((changes) => {
    if (!changes.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    act();
  }, {rootMargin: "100%"});
  observer.observe(part);
}

// One stop of the Tab key for many elements; the arrow keys move between them.
export function moveFocus(from, to) {
  if (!to) return;
  from.setAttribute("tabindex", "-1");
  to.setAttribute("tabindex", "0");
  to.focus();
}
