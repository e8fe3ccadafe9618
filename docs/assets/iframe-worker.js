// Runs the search in a hidden frame on pages that were opened as files, for which browsers start no worker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.document.open();
    this.inside.document.write("<html><body></body></html>");
    this.inside.document.close();
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inside.importScripts = (...urls) => urls.reduce((last, each) => last.then(() => this.load(each)), Promise.resolve());
    this.loaded = this.load(url);
  }

  load(url) {
    return new Promise((done, failed) => {
      const script = this.inside.document.createElement("script");
      Object.assign(script, { src: url, onload: done, onerror: failed });
      this.inside.document.body.append(script);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") window.Worker = IFrameWorker;
