import fc from "fast-check";
import type { Message } from "../src/wire.ts";
import type { FakeServer } from "./server.ts";

/** One thing that happens in a session. Numbers choose among what there is. */
export type Deed =
  | { readonly kind: "turn"; readonly words: number }
  | { readonly kind: "begin" | "say" | "end" | "ask" | "decide" | "background" | "retry" | "fold" }
  | { readonly kind: "edit" | "move"; readonly which: number };

const which = fc.nat({ max: 1_000 });

/** Something that happens in a session. */
export const deed: fc.Arbitrary<Deed> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("turn" as const), words: fc.nat({ max: 4 }) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        "begin" as const,
        "say" as const,
        "say" as const,
        "end" as const,
        "ask" as const,
        "decide" as const,
        "background" as const,
        "fold" as const,
      ),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom("edit" as const, "move" as const), which }) },
);

/** Writes a session by deeds, as the engine would: what does not fit is left out. */
export class History {
  readonly #server: FakeServer;
  readonly #session: string;
  #count = 0;
  /** The foreground run that is open. */
  #open: string | undefined;
  #approval: string | undefined;
  #background: string | undefined;

  constructor(server: FakeServer, session: string) {
    this.#server = server;
    this.#session = session;
  }

  do(deed: Deed): void {
    const script = this.#server.script(this.#session);
    const id = `msg_${++this.#count}`;
    const say = (text: string, more: object = {}) =>
      script.submit({ id, parts: [{ type: "text", text }], ...more });
    switch (deed.kind) {
      case "turn":
        if (this.#open) return;
        script.turn(
          id,
          `Question ${id}`,
          Array.from({ length: deed.words }, (_, i) => `word ${i} `),
        );
        return;
      case "begin":
        if (this.#open) return;
        this.#open = say(`Begin ${id}`);
        script.start(this.#open, id);
        return;
      case "say":
        for (const run of [this.#open, this.#background]) if (run) script.say(run, `${this.#count} `);
        return;
      case "end":
        if (!this.#open || this.#approval) return;
        script.finish(this.#open, `The end of ${id}`);
        this.#open = undefined;
        return;
      case "ask":
        if (!this.#open || this.#approval) return;
        this.#approval = `apr_${id}`;
        script.ask(this.#open, this.#approval);
        return;
      case "decide":
        if (!this.#open || !this.#approval) return;
        script.decide(this.#open, this.#approval, "approve");
        this.#approval = undefined;
        return;
      case "background":
        if (this.#background) {
          script.finish(this.#background, `Behind ${id}`);
          this.#background = undefined;
        } else {
          this.#background = say(`Background ${id}`, { background: true });
          script.start(this.#background, id, true);
        }
        return;
      case "edit": {
        if (this.#open) return;
        const old = this.#message(deed.which, "user");
        const run = say(`Edit ${id}`, { parent: old?.parent ?? "" });
        script.start(run, id);
        script.finish(run, `Edited ${id}`);
        return;
      }
      case "move": {
        const to = this.#message(deed.which);
        if (this.#open || !to) return;
        script.head = to.id;
        script.write(script.event("session.updated", { head: to.id }));
        return;
      }
      case "fold":
        this.#server.fold(this.#session);
    }
  }

  #message(which: number, role?: string): Message | undefined {
    const { shown, aside } = this.#server.state(this.#session);
    const all = [...aside.values(), ...shown.messages].filter((m) => !role || m.role === role);
    all.sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
    return all[which % all.length];
  }
}
