// A page that is opened from the disk (file:) may start no worker. The search then runs in a hidden
// frame with the same interface. Loaded by every page; see `polyfills` in mkdocs.yml.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...scripts) =>
        scripts.reduce((before, one) => before.then(() => load(one)), Promise.resolve())
      const load = script =>
        new Promise((loaded, failed) => {
          const element = inside.document.createElement("script")
          element.src = script
          element.onload = loaded
          element.onerror = failed
          inside.document.body.appendChild(element)
        })
      load(String(url)).then(() => {
        this.inside = inside
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      })
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
  }
}
