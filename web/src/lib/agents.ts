import type { Agent, Client } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import { useEffect, useState } from "react";

type Agents = { readonly items: readonly Agent[]; readonly default: string };

const none: Agents = { items: [], default: "" };
/** They change only when the server starts anew: asked for once a page. */
const asked = new WeakMap<Client, Promise<Agents>>();

/** What can be asked; empty until that is known. */
export function useAgents(): Agents {
  const client = useClient();
  const [agents, setAgents] = useState(none);
  useEffect(() => {
    let wanted = true;
    const promise = asked.get(client) ?? client.api.agents();
    asked.set(client, promise);
    promise.then(
      (known) => wanted && setAgents(known),
      () => asked.delete(client), // the page does without, and asks again when it is drawn anew
    );
    return () => {
      wanted = false;
    };
  }, [client]);
  return agents;
}
