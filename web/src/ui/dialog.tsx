import { type ReactElement, type ReactNode, useLayoutEffect, useRef } from "react";

type Props = {
  readonly onClose: () => void;
  readonly className?: string;
  readonly label: string;
  readonly children: ReactNode;
};

/** A modal dialog: the browser holds the focus inside, closes it on Escape, and gives the focus back. */
export function Dialog({ onClose, className = "dialog", label, children }: Props): ReactElement {
  const ref = useRef<HTMLDialogElement>(null);
  // Before it leaves the page: later it could not give the focus back.
  useLayoutEffect(() => {
    const dialog = ref.current;
    if (!dialog?.open) dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it; the click is on what is around it.
    <dialog
      ref={ref}
      className={className}
      aria-label={label}
      onClose={onClose}
      onCancel={onClose}
      onClick={(event) => {
        if (event.target === event.currentTarget && isOutside(event.currentTarget, event)) onClose();
      }}
    >
      {children}
    </dialog>
  );
}

function isOutside(element: HTMLElement, at: { clientX: number; clientY: number }): boolean {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return at.clientX < left || at.clientX > right || at.clientY < top || at.clientY > bottom;
}
