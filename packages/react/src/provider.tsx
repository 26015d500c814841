import type { Client } from "@holdfast/client";
import { createContext, type ReactElement, type ReactNode, useContext } from "react";

const ClientContext = createContext<Client | undefined>(undefined);

/** Gives a client to the hooks below. Make it once, outside of React: it outlives what is rendered. */
export function HoldfastProvider(props: {
  readonly client: Client;
  readonly children?: ReactNode;
}): ReactElement {
  return <ClientContext.Provider value={props.client}>{props.children}</ClientContext.Provider>;
}

/** The client of the provider above. */
export function useClient(): Client {
  const client = useContext(ClientContext);
  if (!client) throw new Error("there is no HoldfastProvider above this component");
  return client;
}
