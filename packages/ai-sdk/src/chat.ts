import type { Client, SessionMirror, SessionView } from "@holdfast/client";
import { Large } from "./large.ts";

/** A session, as long as somebody looks at it. */
export class ChatSession {
  readonly mirror: SessionMirror;
  readonly large: Large;

  constructor(client: Client, id: string) {
    this.mirror = client.sessions.session(id);
    this.large = new Large(client.api, id);
  }

  /** Looks now, and after each change, until the returned function is called. */
  watch(look: (view: SessionView) => void): () => void {
    const again = () => look(this.mirror.getSnapshot());
    const stops = [this.mirror.subscribe(again), this.large.onText(again)];
    again();
    return () => {
      for (const stop of stops) stop();
    };
  }

  /** Waits for what is looked for, and gives it. Rejects with the signal's reason. */
  until<T>(find: (view: SessionView) => T | undefined, signal?: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      let isOver = false;
      let leave = () => {};
      const end = (settle: () => void) => {
        isOver = true;
        leave();
        signal?.removeEventListener("abort", giveUp);
        settle();
      };
      const giveUp = () => end(() => reject(signal?.reason));
      if (signal?.aborted) return giveUp();
      signal?.addEventListener("abort", giveUp);
      leave = this.watch((view) => {
        if (isOver) return;
        try {
          const found = find(view);
          if (found !== undefined) end(() => resolve(found));
        } catch (error) {
          end(() => reject(error));
        }
      });
      if (isOver) leave();
    });
  }

  /** Waits until it is known what there is. */
  loaded(signal?: AbortSignal): Promise<SessionView> {
    return this.until((view) => (view.status.name === "loading" ? undefined : view), signal);
  }
}
