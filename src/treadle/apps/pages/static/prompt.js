// The prompt: its draft, what is attached to it, and completions of `/` and `@`.
import { $, find, findAt, getTarget } from "./dom.js";

const MAX_SHOWN = 8;
const PAUSE_MS = 700; // in writing

export class Prompt {
  constructor(session, { send, submit, hasMore, showProblem }) {
    this.key = `draft-${session}`;
    this.field = $("prompt");
    this.list = $("completions");
    this.send = send;
    this.submit = submit;
    this.hasMore = hasMore; // whether something goes with an empty message
    this.showProblem = showProblem;
    this.attachments = [];
    this.pause = 0;
    this.found = [];
    this.chosen = 0;
    this.fill(sessionStorage.getItem(this.key) ?? "", false);
    this.listen();
  }

  get isEmpty() {
    return !this.field.value && !this.attachments.length;
  }

  type(text) {
    this.field.focus();
    this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, "end");
    this.change();
  }

  giveBack(text) {
    // A message that was taken back comes before what the user is writing.
    const draft = this.field.value;
    this.fill(draft && text ? `${text}\n${draft}` : text || draft);
  }

  listen() {
    this.field.addEventListener("input", () => this.change());
    this.field.addEventListener("blur", () => this.showCompletions([]));
    this.field.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("pointerdown", (event) => {
      const option = findAt(event, "[role=option]");
      event.preventDefault(); // the prompt keeps the focus
      if (option) this.accept(Number(option.dataset.at));
    });
    $("file").addEventListener("change", (event) => {
      this.attachAll(getTarget(event).files);
      getTarget(event).value = "";
    });
    $("attach-button").addEventListener("click", () => {
      $("file").click();
    });
    document.addEventListener("paste", (event) => {
      if (!event.clipboardData?.files.length) return;
      event.preventDefault();
      this.attachAll(event.clipboardData.files);
    });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      this.attachAll(event.dataTransfer?.files ?? []);
    });
  }

  change() {
    sessionStorage.setItem(this.key, this.field.value);
    this.resize();
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.askForecast(), PAUSE_MS);
    const line = this.lineBeforeCursor();
    const isCommand = line === this.textBeforeCursor() && /^\/\S*$/.test(line);
    // Until the answer is there, only what still fits is listed: Enter takes the first one.
    if (isCommand) this.showCompletions(this.found.filter((one) => one.text.startsWith(line)));
    if (isCommand || /(^|\s)@[^\s@]*$/.test(line)) this.send({ do: "complete", line });
    else this.showCompletions([]);
  }

  // The server answers among the meters, before the first message only.
  askForecast() {
    if (!find("#blocks .you")) this.send({ do: "forecast", text: this.field.value });
  }

  textBeforeCursor() {
    return this.field.value.slice(0, this.field.selectionStart);
  }

  lineBeforeCursor() {
    return this.textBeforeCursor().split("\n").pop() ?? "";
  }

  press(event) {
    if (this.found.length && this.pressInList(event.key)) {
      event.preventDefault();
      event.stopPropagation();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.submitAll();
    }
  }

  pressInList(key) {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (moves[key]) {
      this.chosen = (this.chosen + moves[key] + this.found.length) % this.found.length;
      this.drawCompletions();
    } else if (key === "Escape") this.showCompletions([]);
    else if (key === "Tab" || (key === "Enter" && !this.isComplete())) this.accept(this.chosen);
    else return false;
    return true;
  }

  // Enter sends a command that is typed in full.
  isComplete() {
    const text = this.found[this.chosen].text.trim();
    return this.lineBeforeCursor().trim() === text;
  }

  receiveCompletions(message) {
    if (message.line !== this.lineBeforeCursor() || document.activeElement !== this.field) return;
    this.showCompletions(message.found.slice(0, message.line.startsWith("/") ? 30 : MAX_SHOWN));
  }

  showCompletions(found) {
    this.found = found;
    this.chosen = 0;
    this.drawCompletions();
  }

  drawCompletions() {
    this.list.hidden = !this.found.length;
    this.list.replaceChildren(
      ...this.found.map((one, at) => {
        const option = document.createElement("li");
        option.role = "option";
        option.id = `completion-${at}`;
        option.dataset.at = String(at);
        option.setAttribute("aria-selected", String(at === this.chosen));
        const name = document.createElement("code");
        name.textContent = one.text;
        const about = document.createElement("span");
        about.textContent = one.description ?? "";
        option.append(name, about);
        return option;
      }),
    );
    const id = this.found.length ? `completion-${this.chosen}` : "";
    this.field.setAttribute("aria-expanded", String(Boolean(id)));
    if (id) this.field.setAttribute("aria-activedescendant", id);
    else this.field.removeAttribute("aria-activedescendant");
    $(id)?.scrollIntoView({ block: "nearest" });
  }

  accept(at) {
    const { text, start } = this.found[at];
    const end = this.field.selectionStart;
    const lineStart = end - this.lineBeforeCursor().length;
    this.field.setRangeText(text, lineStart + start, end, "end");
    this.showCompletions([]);
    this.change();
  }

  submitAll() {
    const text = this.field.value.trim();
    if (!text && !this.attachments.length && !this.hasMore()) return;
    if (this.attachments.some((one) => !one.id)) {
      this.showProblem("An attachment is still on its way.");
      return;
    }
    if (!this.submit(text, this.attachments.map((one) => one.id))) return;
    for (const one of this.attachments) URL.revokeObjectURL(one.preview);
    this.attachments = [];
    this.drawAttachments();
    this.fill("");
  }

  fill(text, isFocused = Boolean(text)) {
    this.field.value = text;
    sessionStorage.setItem(this.key, text);
    this.resize();
    this.showCompletions([]);
    if (isFocused) this.field.focus();
  }

  resize() {
    this.field.rows = Math.min(12, this.field.value.split("\n").length);
  }

  // --- attachments

  async attachAll(files) {
    await Promise.all([...files].map((file) => this.attach(file)));
  }

  async attach(file) {
    const isPicture = /^image\/(png|jpeg|gif|webp)$/.test(file.type);
    const preview = isPicture ? URL.createObjectURL(file) : "";
    const one = { name: file.name, size: file.size, id: "", preview };
    this.attachments.push(one);
    this.drawAttachments();
    try {
      const address = `/upload?name=${encodeURIComponent(file.name)}`;
      const response = await fetch(address, { method: "POST", body: file });
      const answer = await response.json();
      if (!answer.id) throw new Error(answer.problem);
      one.id = answer.id;
    } catch (error) {
      this.remove(one);
      this.showProblem(error instanceof Error ? error.message : String(error));
    }
    this.drawAttachments();
  }

  remove(one) {
    URL.revokeObjectURL(one.preview);
    this.attachments = this.attachments.filter((other) => other !== one);
    this.drawAttachments();
  }

  drawAttachments() {
    const list = $("attach");
    list.replaceChildren(...this.attachments.map((one) => this.makeAttachment(one)));
    list.hidden = !this.attachments.length;
  }

  makeAttachment(one) {
    const row = document.createElement("li");
    row.className = "shot";
    if (one.preview) {
      const picture = document.createElement("img");
      picture.src = one.preview;
      picture.alt = "";
      row.append(picture);
    }
    const size = document.createElement("span");
    size.className = "dim";
    size.textContent = one.id ? `${Math.ceil(one.size / 1000)} kB` : "on its way";
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "icon tiny";
    remove.setAttribute("aria-label", `Remove ${one.name}`);
    remove.textContent = "×";
    remove.addEventListener("click", () => this.remove(one));
    row.append(` ${one.name} `, size, remove);
    return row;
  }
}
