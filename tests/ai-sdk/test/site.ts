import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";

const types: Readonly<Record<string, string>> = { html: "text/html", js: "text/javascript", css: "text/css" };

/** A site with pages of its own, which passes everything else on to the server: what a page's host does. */
export class Site {
  readonly url: string;
  readonly #site: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(site: Server, url: string) {
    this.#site = site;
    this.url = url;
    site.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  /** `pages` is the folder of what is under `/page/`. */
  static async before(server: string, pages: string): Promise<Site> {
    const { hostname, port } = new URL(server);
    const pass = (from: IncomingMessage, to: ServerResponse) => {
      const { method, headers, url: path } = from;
      const ask = request({ host: hostname, port, method, headers, path }, (answer) => {
        to.writeHead(answer.statusCode ?? 502, answer.headers);
        to.flushHeaders();
        answer.on("error", () => to.destroy());
        answer.on("close", () => !answer.complete && to.destroy());
        answer.pipe(to);
      });
      ask.on("error", () => to.destroy());
      to.on("close", () => ask.destroy());
      from.pipe(ask);
    };
    const site = createServer((from, to) => {
      const { pathname } = new URL(from.url ?? "/", server);
      if (pathname.startsWith("/page/")) show(join(pages, pathname.slice("/page/".length)), to);
      else pass(from, to);
    });
    site.on("upgrade", (from: IncomingMessage, near: Socket) => {
      const far = connect(Number(port), hostname, () => {
        const head = from.rawHeaders.map((text, i) => (i % 2 ? `${text}\r\n` : `${text}: `)).join("");
        far.write(`${from.method} ${from.url} HTTP/1.1\r\n${head}\r\n`);
        far.pipe(near).pipe(far);
      });
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on("error", () => one.destroy());
        one.on("close", () => other.destroy());
      }
    });
    await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
    const address = site.address();
    if (!address || typeof address === "string") throw new Error("the site does not listen");
    return new Site(site, `http://127.0.0.1:${address.port}`);
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#site.close();
  }
}

function show(path: string, to: ServerResponse): void {
  const file = existsSync(path) && statSync(path).isDirectory() ? join(path, "index.html") : path;
  if (!existsSync(file)) {
    to.writeHead(404).end();
    return;
  }
  const type = types[file.slice(file.lastIndexOf(".") + 1)] ?? "application/octet-stream";
  to.writeHead(200, { "Content-Type": type }).end(readFileSync(file));
}
