// Chromium starts no Web Worker for a page that was opened from a file, and the search runs in one.
// There, run the worker's script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (message) => this.deliver(message, this)
      const script = inside.document.createElement("script")
      script.src = url
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve
        script.onerror = reject
      })
      this.loaded.catch(() => this.onerror?.(new Event("error", { cancelable: true })))
      inside.document.body.append(script)
    }

    postMessage(message) {
      this.loaded.then(() => this.deliver(message, this.frame.contentWindow))
    }

    deliver(message, target) {
      // A copy, as a worker gets: neither side sees what the other makes of it.
      const data = structuredClone(message)
      setTimeout(() => target.onmessage?.({ data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
