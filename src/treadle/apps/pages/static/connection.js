// The socket of a tab. Comes back by itself after a break, with the state that the tab has.
const DELAYS = [0.5, 1, 2, 3, 5];

export class Connection {
  constructor(session, { onMessage, onState, getPosition }) {
    this.session = session;
    this.onMessage = onMessage;
    this.onState = onState;
    this.getPosition = getPosition;
    this.attempts = 0;
    this.isRefused = false;
    this.open();
  }

  open() {
    const have = encodeURIComponent(JSON.stringify(this.getPosition() ?? ""));
    const address = `ws://${location.host}/session/${this.session}/socket?have=${have}`;
    this.socket = new WebSocket(address);
    this.socket.addEventListener("open", () => {
      this.attempts = 0;
      this.onState("connected", 0);
    });
    this.socket.addEventListener("message", (event) => this.receive(JSON.parse(event.data)));
    this.socket.addEventListener("close", () => this.wait());
  }

  receive(message) {
    if (message.kind === "problem" && message.request === "open") this.isRefused = true;
    this.onMessage(message);
  }

  wait() {
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
    return this.socket.readyState === WebSocket.OPEN;
  }

  send(message) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }
}
