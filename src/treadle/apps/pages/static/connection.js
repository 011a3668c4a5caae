// The socket of a tab. Comes back by itself after a break, with the state that the tab has. The
// server says now and then that it is there: a connection that is silent for longer hangs.
const DELAYS = [0.5, 1, 2, 3, 5];
const SILENCE_MS = 8000;

// Not crypto.randomUUID: a page that comes through a tunnel without TLS does not have it.
export function makeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

export class Connection {
  constructor(session, { onMessage, onState, getPosition }) {
    this.session = session;
    this.onMessage = onMessage;
    this.onState = onState;
    this.getPosition = getPosition;
    this.attempts = 0;
    this.isRefused = false;
    this.heardAt = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.open();
    setInterval(() => this.checkSilence(), 1000);
  }

  open() {
    const have = encodeURIComponent(JSON.stringify(this.getPosition() ?? ""));
    const base = `${location.protocol.replace("http", "ws")}//${location.host}`;
    const socket = new WebSocket(`${base}/session/${this.session}/socket?have=${have}`);
    this.socket = socket;
    this.heardAt = Date.now();
    socket.addEventListener("open", () => {
      this.heardAt = Date.now();
      this.attempts = 0;
      this.onState("connected", 0);
    });
    socket.addEventListener("message", (event) => {
      this.heardAt = Date.now();
      this.receive(JSON.parse(event.data));
    });
    socket.addEventListener("close", () => {
      if (this.socket === socket) this.wait();
    });
  }

  // A server that hangs sends no end of the connection, so nobody waits for one.
  checkSilence() {
    const { socket } = this;
    if (!socket || this.isRefused || Date.now() - this.heardAt < SILENCE_MS) return;
    this.socket = null;
    socket.close();
    this.wait();
  }

  receive(message) {
    if (message.kind === "problem" && message.request === "open") this.isRefused = true;
    this.onMessage(message);
  }

  wait() {
    this.socket = null;
    if (this.isRefused) return this.onState("refused", 0);
    let left = DELAYS[Math.min(this.attempts, DELAYS.length - 1)];
    this.attempts += 1;
    const tick = () => {
      if (left <= 0) return this.open();
      this.onState("waiting", Math.ceil(left));
      const step = Math.min(1, left);
      left -= step;
      setTimeout(tick, step * 1000);
    };
    tick();
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  // What has an id is done once, however often it arrives. What only looks something up has none.
  send(message) {
    if (!this.socket || !this.isOpen) return false;
    const isLookup = ["complete", "search", "earlier", "inbox", "pane"].includes(message.do);
    this.socket.send(JSON.stringify(isLookup ? message : { id: makeId(), ...message }));
    return true;
  }
}
