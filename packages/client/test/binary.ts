import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** The real binary: built once, or the one that HOLDFAST_BINARY names. */
export function build(): string {
  const given = process.env.HOLDFAST_BINARY;
  if (given) {
    if (!existsSync(given)) throw new Error(`HOLDFAST_BINARY names ${given}, which is not there`);
    return given;
  }
  const binary = join(root, "bin", "holdfast");
  execFileSync("go", ["build", "-o", binary, "./cmd/holdfast"], { cwd: root, stdio: "inherit" });
  return binary;
}

/** A server that can be killed and started again in the same place. */
export class Binary {
  readonly #binary: string;
  readonly #data = mkdtempSync(join(tmpdir(), "holdfast-client-"));
  #process: ChildProcess | undefined;
  /** Where it listens, from the first start on. */
  address = "127.0.0.1:0";

  constructor(binary: string) {
    this.#binary = binary;
  }

  async start(): Promise<void> {
    const args = ["serve", "--listen", this.address, "--data", this.#data, "--log-level", "error"];
    const child = spawn(this.#binary, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#process = child;
    let said = "";
    await new Promise<void>((resolve, reject) => {
      child.stdout.on("data", (piece) => {
        said += String(piece);
        const found = /http:\/\/(\S+)/.exec(said);
        if (!found?.[1]) return;
        this.address = found[1];
        resolve();
      });
      child.once("exit", () => reject(new Error(`the server ended: ${said}`)));
    });
  }

  /** Ends it as a crash does. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null) return;
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  }

  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.#data, { recursive: true, force: true });
  }
}

/** A network between pages and a server that can be cut, and that counts what goes through. */
export class Network {
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((near) => this.#carry(near));
  #down = false;
  /** The first lines of the requests that went through. */
  readonly requests: string[] = [];
  readonly #to: () => string;

  constructor(to: () => string) {
    this.#to = to;
  }

  async open(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const address = this.#server.address();
    if (!address || typeof address === "string") throw new Error("the network has no port");
    return `http://127.0.0.1:${address.port}`;
  }

  /** Ends all connections, and takes no more until `mend`. */
  cut(): void {
    this.#down = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend(): void {
    this.#down = false;
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #carry(near: Socket): void {
    if (this.#down) {
      near.destroy();
      return;
    }
    const [host, port] = this.#to().split(":");
    const far = dial(Number(port), host);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(from);
      from.on("error", () => from.destroy());
      from.on("close", () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
    near.on("data", (bytes) => {
      for (const line of String(bytes).matchAll(/^(GET|POST|PATCH|DELETE) \S+/gm))
        this.requests.push(line[0]);
    });
    near.pipe(far);
    far.pipe(near);
  }
}
