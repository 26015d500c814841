import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";

/** A gateway that lets no WebSocket through and ends each answer, cleanly, when it has lasted for some time. */
export class Gateway {
  readonly #server: Server;
  readonly #target: URL;
  readonly #life: number;
  /** Answers that it ended before their end. */
  ends = 0;

  private constructor(target: string, life: number) {
    this.#target = new URL(target);
    this.#life = life;
    this.#server = createServer((question, answer) => this.#pass(question, answer));
  }

  static async before(target: string, life: number): Promise<Gateway> {
    const gateway = new Gateway(target, life);
    await new Promise<void>((resolve) => gateway.#server.listen(0, "127.0.0.1", resolve));
    return gateway;
  }

  get url(): string {
    const address = this.#server.address();
    if (!address || typeof address === "string") throw new Error("the gateway does not listen");
    return `http://127.0.0.1:${address.port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #pass(question: IncomingMessage, answer: ServerResponse): void {
    const { method, url: path } = question;
    const { upgrade: _, connection: __, ...headers } = question.headers; // what a gateway does not pass on
    const upstream = request(new URL(path ?? "/", this.#target), { method, headers }, (reply) => {
      answer.writeHead(reply.statusCode ?? 502, reply.headers);
      reply.pipe(answer);
      const timer = setTimeout(() => {
        this.ends++;
        reply.unpipe(answer);
        answer.end();
        upstream.destroy();
      }, this.#life);
      reply.once("close", () => clearTimeout(timer));
    });
    upstream.once("error", () => answer.destroy());
    answer.once("close", () => upstream.destroy());
    question.pipe(upstream);
  }
}
