// The work page: shows what the server sends, sends what the user does.
import { Blocks } from "./blocks.js";
import { Comments } from "./comments.js";
import { Connection } from "./connection.js";
import { showDiff } from "./diffs.js";
import { $, find, findAll, findAt, get, getFocused, getTarget } from "./dom.js";
import { TextFinder } from "./find.js";
import { listenToKeys } from "./keys.js";
import { Outbox } from "./outbox.js";
import { Panes } from "./panes.js";
import { Prompt } from "./prompt.js";
import { replaceContent } from "./regions.js";
import { Review } from "./review.js";
import { SessionList } from "./session_list.js";
import { SettingsPanes } from "./settings.js";

const session = document.body.dataset.session;
const COMMAND = /^\/[\w:.-]*(\s|$)/; // a slash command; a path is not one
const PREVIEW = "preview"; // the feed of what is shown while the session is loaded
const AT_END = -200; // pixels: nearer to the end, the conversation follows what is new
/** @type {any[] | null} */
let position = null;
let newCount = 0;

if ($("blocks")) start();

function start() {
  const blocks = new Blocks($("blocks"));
  const connection = new Connection(session, {
    onMessage: (message) => receive(message),
    onState: (state, left) => {
      showConnection(state, left);
      if (state !== "connected") outbox.disconnect();
      else if (!panes.isOpen) panes.load();
    },
    getPosition: () => position,
  });
  const outbox = new Outbox(session, {
    list: $("outbox"),
    send: (message) => connection.send(message),
    describeEnd,
    isBusy: () => Boolean($("now").textContent),
    giveBack: (text) => prompt.giveBack(text),
  });
  const send = (message) => {
    const isSent = connection.send(message);
    if (!isSent) showToast("Not connected; try again in a moment.");
    return isSent;
  };
  const comments = new Comments(session, $("comments"));
  const review = new Review(session, $("pane"), { send, comments });
  const settings = new SettingsPanes($("pane"), send);
  const panes = new Panes({
    send: (message) => connection.send(message),
    shown: (name) => (name === "review" ? review : settings).complete(),
    onClose: () => {
      if (matchMedia("(pointer: fine)").matches) prompt.field.focus();
    },
  });
  const prompt = new Prompt(session, {
    send: (message) => connection.send(message),
    submit,
    hasMore: () => comments.all.length > 0,
    showProblem: showToast,
  });
  const finder = new TextFinder($("blocks"), (first) => send({ do: "earlier", first }), showToast);
  const list = new SessionList((text) => send({ do: "search", text }));

  function submit(text, attached) {
    $("scroll").scrollTop = 0;
    if (COMMAND.test(text) && !attached.length) return send({ do: "command", line: text });
    outbox.add(text.startsWith("!") ? text : comments.addTo(text), attached);
    panes.close();
    return true;
  }

  function receive(message) {
    const handlers = {
      update: () => {
        const wasBusy = Boolean($("now").textContent);
        applyUpdate(message, blocks);
        if (wasBusy && !$("now").textContent) panes.refresh(); // a turn has ended
        const [feed] = message.position;
        if (feed !== PREVIEW) finder.look(blocks.first);
        if (feed !== PREVIEW && takesMessages($("access").textContent)) outbox.connect(feed);
      },
      list: () => {
        const before = Number($("waiting").textContent);
        list.show(message);
        if (message.waiting > before) notify(message.waiting);
        if (message.waiting !== before && isInboxOpen()) connection.send({ do: "inbox" });
      },
      found: () => list.showFound(message),
      dialog: () => showDialog(message.html),
      pane: () => {
        panes.show(message);
        if (message.note) showToast(message.note);
      },
      message: () => showToast(message.text),
      problem: () => {
        if (message.request === "send") outbox.hold(message.id);
        (message.request === "open" ? showRefusal : showToast)(message.text);
      },
      prompt: () => prompt.giveBack(message.text),
      completions: () => prompt.receiveCompletions(message),
      received: () => outbox.confirm(message.id),
      earlier: () => {
        showEarlier(message, blocks);
        finder.look(blocks.first);
      },
      download: () => location.assign(message.address),
      go: () => goTo(message),
    };
    handlers[message.kind]?.();
  }

  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    prompt.submitAll();
  });

  setInterval(tickClocks, 1000);

  // --- clicks
  document.addEventListener("click", (event) => {
    const button = findAt(event, "button, [data-copy]");
    if (!button) return;
    const data = button.dataset;
    if (data.answer) answer(button.closest(".ask"), data.answer);
    else if ("copy" in data) copyCode(button);
    else if (data.diff) switchDiff(button);
    else if (data.example !== undefined) prompt.fill(button.textContent);
    else if (data.stopTask) send({ do: "stop_task", task: data.stopTask });
    else if (data.withdraw) send({ do: "withdraw", index: Number(data.withdraw) });
    else if (data.ask) send({ do: "command", line: `/${data.ask}` });
    else if ("close" in data) $("dialog").close();
    else if (data.filter !== undefined) list.choose(data.filter);
    else if (data.do) act(data, button);
  });

  function act(data, button) {
    const files = [...(button.closest("dialog")?.querySelectorAll("[data-include]:checked") ?? [])];
    const include = files.map((box) => box.dataset.include);
    const messages = {
      budget: () => ({ do: "command", line: `/budget ${data.kind} ${findLimit(data)}` }),
      fork: () => ({ do: "command", line: "/fork" }),
      choose: () => ({
        do: "choose",
        question: Number(data.question),
        ...("files" in data ? { include } : { value: data.value }),
      }),
      resume: () => ({ do: "resume" }),
    };
    send(messages[data.do]());
    if ($("dialog").open) $("dialog").close();
  }

  function findLimit(data) {
    return "off" in data ? "off" : get(`[data-limit=${data.kind}]`, $("dialog")).value.trim();
  }

  $("dialog").addEventListener("keydown", (event) => {
    const limit = event.key === "Enter" && getTarget(event).dataset.limit;
    if (limit) get(`[data-kind=${limit}]`, $("dialog")).click();
  });
  $("stop-button").addEventListener("click", () => send({ do: "interrupt" }));
  $("end-button").addEventListener("click", () => {
    $("scroll").scrollTop = 0;
  });
  $("earlier-button").addEventListener("click", () => {
    send({ do: "earlier", first: blocks.first });
  });
  $("scroll").addEventListener("scroll", showEndButton, { passive: true });
  $("new-button").addEventListener("click", createSession);
  $("inspect-link").href = `/inspect/${session}`;
  $("keys-button")?.addEventListener("click", showKeys);
  $("inbox-button").addEventListener("click", () => {
    if ("Notification" in window && Notification.permission === "default") {
      Notification.requestPermission();
    }
    send({ do: "inbox" });
  });

  // --- answers
  function answer(card, kind) {
    const question = Number(card.dataset.question);
    const value = (selector) => find(selector, card)?.value ?? "";
    if (get(`[data-answer="${kind}"]`, card).disabled) return;
    if (kind === "edit") return toggleEditor(card);
    const of = card.closest("[data-of]")?.dataset.of; // in the inbox: a question of any session
    /** @type {Record<string, any>} */
    const message = { do: "answer", question, answer: kind, ...(of ? { session: of } : {}) };
    if (kind === "deny") message.text = value("[data-reason]");
    if (kind === "edited") {
      message.answer = "edit";
      const field = get("[data-argument]", card);
      message.arguments = { [field.dataset.argument ?? ""]: field.value };
    }
    if (kind === "answer") {
      const chosen = findAll("[name=choice]:checked", card).map((box) => box.value);
      const own = value("[data-own]").trim();
      if (own) chosen.push(own);
      if (!chosen.length) return showToast("Choose an answer, or write one.");
      message.text = chosen.join(", ");
    }
    if (send(message) && of) card.closest(".item").remove();
  }

  // The other buttons would allow the call as the model wrote it.
  function toggleEditor(card) {
    const editor = get(".edit", card);
    editor.hidden = !editor.hidden;
    for (const kind of ["once", "network", "session", "always"]) {
      const button = find(`[data-answer="${kind}"]`, card);
      if (button) button.disabled = !editor.hidden;
    }
    card.querySelector(editor.hidden ? "[data-answer=edit]" : ".edit textarea").focus();
  }

  listenToKeys({ send, prompt, panes, createSession, showKeys, moveFocus });
}

// --- what the server sends ------------------------------------------------------------------

function goTo(message) {
  if (message.is_replacement) {
    for (const name of ["outbox", "draft"]) {
      const kept = sessionStorage.getItem(`${name}-${session}`);
      if (kept) sessionStorage.setItem(`${name}-${message.session}`, kept);
    }
  }
  location.assign(`/session/${message.session}`);
}

function applyUpdate(update, blocks) {
  const before = blocks.count;
  blocks.apply(update);
  position = [update.position[0], update.position[1], blocks.first];
  for (const [name, html] of Object.entries(update.regions ?? {})) setRegion(name, html);
  $("earlier").hidden = blocks.first === 0;
  const isNew = blocks.first === 0 && !find(".you, .prose, .call", $("blocks"));
  document.body.classList.toggle("is-new", isNew && !document.body.classList.contains("has-pane"));
  document.body.classList.toggle("no-panels", !$("panels").firstElementChild);
  if (!update.is_reset && isScrolledUp()) newCount += Math.max(0, blocks.count - before);
  showEndButton();
}

// What a user who writes a message has read last; null as long as nothing is shown.
function describeEnd() {
  if (!position) return null;
  const last = (selector) => findAll(selector, $("blocks")).pop()?.textContent ?? "";
  return `${last(".you .said")}\n${last(".prose")}`;
}

function isScrolledUp() {
  return $("scroll").scrollTop < AT_END;
}

function showEndButton() {
  const isUp = isScrolledUp();
  if (!isUp) newCount = 0;
  $("end-button").hidden = !isUp;
  $("end-button").textContent = newCount ? `${newCount} new, go to the end` : "Go to the end";
}

function setRegion(name, html) {
  const element = $(name);
  if (!element) return;
  if (name === "questions") return setQuestions(element, html);
  replaceContent(element, html);
  if (name === "access") setAccess(html);
  if (name === "now") $("stop-button").hidden = !html;
  if (name === "pocket") element.hidden = !html;
  if (name === "head") document.title = `${get("h1", element).textContent} · Treadle`;
}

// "" (all can be done), "read-only", "agent" (at work: it takes messages only), "ended-agent".
function setAccess(access) {
  document.body.classList.toggle("read-only", Boolean(access));
  document.body.classList.toggle("is-agent", access.endsWith("agent"));
  const fields = findAll("textarea, button, input", $("form"));
  for (const one of fields) one.disabled = !takesMessages(access);
}

function takesMessages(access) {
  return access === "" || access === "agent";
}

// A card that is shown already stays as it is, with what the user typed into it.
function setQuestions(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const wanted = [...template.content.children];
  const ids = new Set(wanted.map((card) => card.id));
  const hadFocus = element.contains(document.activeElement);
  for (const card of [...element.children]) if (!ids.has(card.id)) card.remove();
  for (const card of wanted) {
    if (!$(card.id)) element.append(card);
  }
  if (element.firstElementChild) focusQuestion(element.firstElementChild);
  else if (hadFocus && matchMedia("(pointer: fine)").matches) $("prompt").focus();
}

// A new question gets the focus, unless the user is at something else.
function focusQuestion(item) {
  const card = item?.querySelector(".ask") ?? item;
  const { activeElement } = document;
  const isEmptyPrompt = activeElement === $("prompt") && !$("prompt").value;
  if (!card || $("dialog").open || !(isEmptyPrompt || activeElement === document.body)) return;
  card.tabIndex = -1;
  card.focus({ preventScroll: true });
}

function showEarlier(message, blocks) {
  blocks.prepend(message.blocks);
  position = position && [position[0], position[1], blocks.first];
  $("earlier").hidden = blocks.first === 0;
}

function showConnection(state, left) {
  const live = $("live");
  const texts = {
    connected: "Connected",
    waiting: `Reconnecting, ${left} s`,
    refused: "Not connected",
  };
  live.textContent = texts[state];
  live.classList.toggle("is-off", state !== "connected");
}

// The session cannot be opened: this stays in view.
function showRefusal(text) {
  const line = document.createElement("p");
  line.setAttribute("role", "alert");
  line.textContent = text;
  $("banner").replaceChildren(line);
}

// --- what waits for the user ------------------------------------------------------------------

function isInboxOpen() {
  return $("dialog").open && Boolean(find("[data-inbox]", $("dialog")));
}

function notify(count) {
  if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
  const text = count === 1 ? "A session waits for you" : `${count} sessions wait for you`;
  const note = new Notification("Treadle", { body: text, tag: "treadle-waiting" });
  note.addEventListener("click", () => window.focus());
}

// The time of calls that run, and until the next attempt of a model call.
function tickClocks() {
  for (const clock of findAll("[data-until]")) {
    const seconds = Math.max(0, Math.ceil(Number(clock.dataset.until) - Date.now() / 1000));
    clock.textContent = `${seconds} s`;
  }
  for (const clock of findAll("[data-since]")) {
    const seconds = Math.max(0, Math.floor(Date.now() / 1000 - Number(clock.dataset.since)));
    const minutes = Math.floor(seconds / 60);
    clock.textContent = minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
  }
}

// --- small parts ----------------------------------------------------------------------------

function showDialog(html) {
  const dialog = $("dialog");
  dialog.innerHTML = html;
  for (const card of findAll(".ask", dialog)) card.tabIndex = -1;
  if (!dialog.open) dialog.showModal();
  // Enter changes nothing: the focus is at the current value, or at the button that closes.
  const places = ["[data-inbox] .ask", "[aria-current]", "[data-limit]", ".btn.first", "[data-close]"];
  places.map((one) => find(one, dialog)).find(Boolean)?.focus();
}

function showKeys() {
  const keys = [
    ["Enter", "send"], ["Shift+Enter", "new line"], ["Esc", "stop the turn"],
    ["Shift+Tab", "change the mode"], ["Y O S A E N", "mark an answer of the question that has the focus; Enter takes it"],
    ["/", "search; Enter searches the text of all sessions"], ["N", "new session"], ["J K", "next and previous item"],
    ["[ ]", "hide the columns"], ["?", "this list"],
  ];
  const rows = keys.map(([key, text]) => `<li><kbd>${key}</kbd> ${text}</li>`).join("");
  const close = '<div class="row"><button class="btn" type="button" data-close>Close</button></div>';
  showDialog(`<h2 id="dialog-title">Keys</h2><ul class="files">${rows}</ul>${close}`);
}

let toastTimer = 0;
function showToast(text) {
  const toast = $("toast");
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    toast.hidden = true;
  }, 8000);
}

function moveFocus(step) {
  const isReview = !$("pane").hidden;
  const items = findAll(isReview ? "#pane .hunk-card" : "#blocks .item, #questions .item");
  const last = items.length - 1;
  const at = items.indexOf(getFocused().closest(".item, .hunk-card") ?? getFocused());
  const first = isReview ? 0 : last; // a conversation is read from its end
  const next = items[at < 0 ? first : Math.max(0, Math.min(last, at + step))];
  if (!next) return;
  const target = find("summary, button, a", next) ?? next;
  if (target === next) next.tabIndex = -1;
  target.focus();
  next.scrollIntoView({ block: "nearest" });
}

async function createSession() {
  const response = await fetch("/new", { method: "POST", body: "" });
  const answer = await response.json();
  if (answer.session) location.assign(`/session/${answer.session}`);
  else showToast(answer.problem);
}

function copyCode(button) {
  const code = button.closest(".code").querySelector("code").textContent;
  navigator.clipboard.writeText(code).then(() => {
    button.textContent = "Copied";
  });
}

function switchDiff(button) {
  const isSplit = button.dataset.diff === "split";
  for (const other of button.parentElement.children) {
    other.setAttribute("aria-pressed", String(other === button));
  }
  for (const table of button.closest(".ask").querySelectorAll("table.diff")) {
    showDiff(table, isSplit);
  }
}
