import { connect, createServer, type Server, type Socket } from "node:net";

/** A network that can be cut, between a page and its server. */
export class Network {
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  readonly #target: number;
  #down = false;
  #silent = false;
  /** Connections that were accepted, or refused while the network was down. */
  attempts = 0;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((client) => this.#accept(client));
  }

  /** Listens before a server at `url`. */
  static async before(url: string): Promise<Network> {
    const network = new Network(Number(new URL(url).port));
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

  /** Lets connections be, and nothing through them: a dead network that says nothing. */
  freeze(): void {
    this.#silent = true;
    for (const [client, server] of this.#pairs) {
      client.pause();
      server.pause();
    }
  }

  restore(): void {
    this.#down = false;
    this.#silent = false;
    for (const [client, server] of this.#pairs) {
      client.resume();
      server.resume();
    }
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
    client.pipe(server);
    server.pipe(client);
    if (this.#silent) {
      client.pause();
      server.pause();
    }
  }
}
