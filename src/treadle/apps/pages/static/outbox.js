// Messages that the server has not confirmed. They wait here, also over a reload, and are sent
// again under the same id, which the server counts once.
export class Outbox {
  constructor(session, send) {
    this.key = `outbox-${session}`;
    this.send = send;
    this.waiting = JSON.parse(sessionStorage.getItem(this.key) ?? "[]");
  }

  add(text, attachments) {
    const id = crypto.randomUUID();
    this.waiting.push({ do: "send", id, text, attachments });
    this.save();
    this.flush();
  }

  flush() {
    for (const message of this.waiting) this.send(message);
  }

  confirm(id) {
    this.waiting = this.waiting.filter((message) => message.id !== id);
    this.save();
  }

  rename(session) {
    sessionStorage.removeItem(this.key);
    this.key = `outbox-${session}`;
    this.save();
  }

  save() {
    sessionStorage.setItem(this.key, JSON.stringify(this.waiting));
  }
}
