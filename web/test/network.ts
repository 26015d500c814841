import { connect, createServer, type Server, type Socket } from "node:net";

/** A network that can be cut, between a page and its server. */
export class Network {
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  readonly #target: number;
  #down = false;
  #idle = 0;
  #lost: RegExp | undefined;
  /** Connections that were accepted, or refused while the network was down. */
  attempts = 0;
  /** The first lines of the POSTs that came through, as often as they were really sent. */
  readonly posts: string[] = [];
  /** Connections that were ended since nothing was said on them. */
  idleEnds = 0;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((client) => this.#accept(client));
  }

  /** Listens before a server at `url`. It may end what is silent for `idle` milliseconds, as many a proxy does. */
  static async before(url: string, idle = 0): Promise<Network> {
    const network = new Network(Number(new URL(url).port));
    network.#idle = idle;
    await new Promise<void>((resolve) => network.#server.listen(0, "127.0.0.1", resolve));
    return network;
  }

  get url(): string {
    const address = this.#server.address();
    if (!address || typeof address === "string") throw new Error("the network does not listen");
    return `http://127.0.0.1:${address.port}`;
  }

  /** Ends every connection, once. */
  drop(): void {
    for (const [client, server] of this.#pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
  }

  /** Ends every connection and lets no other through until `restore`. */
  cut(): void {
    this.#down = true;
    this.drop();
  }

  /** Lets nothing more through the connections that there are, and does not say so. New ones are let through. */
  strand(): void {
    for (const [client, server] of this.#pairs) {
      client.unpipe(server);
      server.unpipe(client);
    }
  }

  /** Lets the next request that matches through, and ends the connection in place of its answer. */
  loseAnswer(request: RegExp): void {
    this.#lost = request;
  }

  restore(): void {
    this.#down = false;
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #accept(client: Socket): void {
    this.attempts++;
    if (this.#down) {
      client.resetAndDestroy();
      return;
    }
    const server = connect(this.#target, "127.0.0.1");
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    const end = () => {
      this.#pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of pair) {
      socket.on("error", end);
      socket.on("close", end);
    }
    client.setTimeout(this.#idle, () => {
      this.idleEnds++;
      end();
    });
    let isLost = false;
    client.on("data", (data: Buffer) => {
      const [line = ""] = data.toString("latin1").split("\r\n", 1);
      if (line.startsWith("POST ")) this.posts.push(line);
      if (!this.#lost?.test(line)) return;
      this.#lost = undefined;
      isLost = true;
    });
    server.on("data", () => {
      if (isLost) end();
    });
    client.pipe(server);
    server.pipe(client);
  }
}
