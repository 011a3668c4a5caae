// The review pane: hunks side by side, which of them are kept, and comments on lines.
import { showDiff } from "./diffs.js";
import { find, findAll, findAt, get, getTarget } from "./dom.js";

const NARROW = matchMedia("(max-width: 720px)");

export class Review {
  constructor(session, pane, { send, comments }) {
    this.pane = pane;
    this.send = send;
    this.comments = comments;
    this.key = `kept-${session}`;
    this.kept = new Set(JSON.parse(sessionStorage.getItem(this.key) ?? "[]"));
    this.isSplit = true;
    pane.addEventListener("click", (event) => this.click(event));
    pane.addEventListener("change", (event) => {
      if ("turns" in getTarget(event).dataset) location.hash = `review-${getTarget(event).value}`;
    });
    pane.addEventListener("keydown", (event) => this.press(event));
    comments.onChange = () => this.drawComments();
    NARROW.addEventListener("change", () => this.layOut());
  }

  get cards() {
    return findAll(".hunk-card", this.pane);
  }

  // After the server has drawn the pane.
  complete() {
    for (const card of this.cards) {
      find(".line", card)?.setAttribute("tabindex", "0");
      if (this.kept.has(card.dataset.hunk)) this.fold(card, true);
    }
    this.layOut();
    this.countKept();
  }

  layOut() {
    this.removeRows(".comment");
    const isSplit = this.isSplit && !NARROW.matches;
    for (const table of findAll("table.diff", this.pane)) {
      if (isSplit !== table.classList.contains("split")) showDiff(table, isSplit);
    }
    for (const button of findAll("[data-layout]", this.pane)) {
      button.setAttribute("aria-pressed", String((button.dataset.layout === "split") === this.isSplit));
    }
    this.drawComments();
  }

  click(event) {
    const button = findAt(event, "button");
    const card = button?.closest(".hunk-card");
    if (!button) return;
    const { dataset } = button;
    if (dataset.layout) {
      this.isSplit = dataset.layout === "split";
      this.layOut();
    } else if (dataset.file) this.goTo(dataset.file);
    else if ("fold" in dataset) this.fold(card, button.getAttribute("aria-expanded") === "true");
    else if ("keep" in dataset) this.keep(card);
    else if ("drop" in dataset) this.drop(card);
    else if (dataset.line) this.edit(button);
    else if ("cancel" in dataset) this.endEdit(button, false);
    else if ("add" in dataset) this.endEdit(button, true);
  }

  goTo(number) {
    const file = get(`#file-${number}`, this.pane);
    file.scrollIntoView({ block: "start" });
    file.focus({ preventScroll: true });
  }

  fold(card, isFolded) {
    const button = get("[data-fold]", card);
    button.setAttribute("aria-expanded", String(!isFolded));
    card.classList.toggle("folded", isFolded);
    get("[data-kept-tag]", card).hidden = !this.kept.has(card.dataset.hunk);
  }

  keep(card) {
    const key = card.dataset.hunk;
    if (!this.kept.delete(key)) this.kept.add(key);
    sessionStorage.setItem(this.key, JSON.stringify([...this.kept]));
    this.fold(card, this.kept.has(key));
    this.countKept();
    const next = this.cards.find((one) => !this.kept.has(one.dataset.hunk));
    if (this.kept.has(key)) (next ?? card).querySelector("[data-keep]").focus();
  }

  countKept() {
    for (const mark of findAll("[data-kept-of]", this.pane)) {
      const cards = findAll(`#file-${mark.dataset.keptOf} .hunk-card`, this.pane);
      const count = cards.filter((card) => this.kept.has(card.dataset.hunk)).length;
      const text = count === cards.length ? "kept" : `${count} of ${cards.length} kept`;
      mark.textContent = count ? ` · ${text}` : "";
    }
  }

  drop(card) {
    const { scope, turn } = get("[data-scope]", this.pane).dataset;
    const { hunk, number } = card.dataset;
    this.send({ do: "drop_hunk", scope, key: hunk, number: Number(number), turn: Number(turn ?? 0) });
  }

  // --- comments on lines

  press(event) {
    const line = findAt(event, ".line");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (line && step) {
      const lines = findAll(".line", line.closest("table") ?? this.pane);
      const next = lines[lines.indexOf(line) + step];
      if (!next) return;
      event.preventDefault();
      line.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
    const field = findAt(event, ".comment textarea");
    if (!field) return;
    const isDone = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (isDone || event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      this.endEdit(field, isDone);
    }
  }

  edit(line) {
    const path = line.closest(".file").dataset.path;
    this.removeRows(".editor");
    const row = this.addRow(line, "editor");
    const name = line.getAttribute("aria-label");
    const field = document.createElement("textarea");
    field.rows = 3;
    field.setAttribute("aria-label", name);
    field.value = this.comments.find(path, line.dataset.line);
    const about = document.createElement("p");
    about.textContent = `${name}: it becomes part of your next message`;
    const buttons = document.createElement("div");
    buttons.className = "row";
    buttons.append(makeButton("Cancel", "cancel", "btn bare"), makeButton("Add comment", "add", "btn first"));
    row.append(about, field, buttons);
    field.focus();
  }

  endEdit(inside, isDone) {
    const row = inside.closest("tr");
    const line = row.closest("table").querySelector(`[data-line="${row.dataset.of}"]`);
    const text = get("textarea", row).value.trim();
    const path = row.closest(".file").dataset.path;
    row.remove();
    if (isDone) this.comments.set(path, line.dataset.line, text);
    else this.drawComments();
    line.focus();
  }

  drawComments() {
    if (this.pane.hidden) return;
    this.removeRows(".comment:not(.editor)");
    for (const file of findAll(".file", this.pane)) {
      for (const { path, line, text } of this.comments.all) {
        const button = path === file.dataset.path && find(`[data-line="${line}"]`, file);
        if (!button) continue;
        const said = document.createElement("p");
        said.className = "said";
        said.textContent = text;
        const about = document.createElement("p");
        about.textContent = "Your comment, not sent yet";
        this.addRow(button, "").append(about, said);
      }
    }
  }

  addRow(line, style) {
    const row = document.createElement("tr");
    row.className = `comment ${style}`.trim();
    row.dataset.of = line.dataset.line;
    const cell = document.createElement("td");
    cell.colSpan = 4;
    row.append(cell);
    line.closest("tr").after(row);
    return cell;
  }

  removeRows(selector) {
    for (const row of findAll(`tr${selector}`, this.pane)) row.remove();
  }
}

function makeButton(label, name, style) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = style;
  button.dataset[name] = "";
  button.textContent = label;
  return button;
}
