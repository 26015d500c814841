import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

/** So near the end counts as the end, in pixels. */
const near = 40;
/** A scroll so soon after a gesture is the person's, in milliseconds. */
const recent = 600;

type Follow = {
  /** Whether the end is followed as it grows. */
  readonly following: boolean;
  /** Goes to the end and follows it. */
  readonly follow: () => void;
  /** Leaves the end: something else is to be seen. */
  readonly leave: () => void;
  /** The content, or the room for it, has another size. */
  readonly resized: () => void;
};

/**
 * Follows the end of what grows, until the person scrolls away; when they come
 * back to the end, it is followed again. What the page itself scrolls, or what
 * the list corrects when it measures, is not taken for a gesture; that the focus
 * moves is one. Under somebody who types in it nothing moves.
 */
export function useFollow(scroller: RefObject<HTMLElement | null>): Follow {
  const [following, setFollowing] = useState(true);
  const state = useRef({ following: true, touchedAt: Number.NEGATIVE_INFINITY, held: false, top: 0 });

  const set = useCallback((next: boolean) => {
    state.current.following = next;
    setFollowing(next);
  }, []);

  const resized = useCallback(() => {
    const element = scroller.current;
    if (element && state.current.following && !isTypedIn(element)) element.scrollTop = element.scrollHeight;
  }, [scroller]);

  const follow = useCallback(() => {
    set(true);
    resized();
  }, [set, resized]);

  const leave = useCallback(() => set(false), [set]);

  useLayoutEffect(resized);

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const stop = new AbortController();
    const options = { signal: stop.signal, passive: true };
    const touched = () => {
      state.current.touchedAt = performance.now();
    };
    const scrolled = () => {
      const { top } = state.current;
      state.current.top = element.scrollTop;
      const away = element.scrollHeight - element.clientHeight - element.scrollTop;
      if (away <= near) {
        if (!state.current.following) set(true);
        return;
      }
      // What is followed goes down only, however far it grew meanwhile.
      const theirs = state.current.held || performance.now() - state.current.touchedAt < recent;
      if (theirs && element.scrollTop < top && state.current.following) set(false);
    };
    element.addEventListener("scroll", scrolled, options);
    for (const gesture of ["wheel", "touchmove", "keydown", "focusin"])
      element.addEventListener(gesture, touched, options);
    element.addEventListener(
      "pointerdown",
      () => {
        state.current.held = true;
        touched();
      },
      options,
    );
    window.addEventListener(
      "pointerup",
      () => {
        state.current.held = false;
      },
      options,
    );
    const observer = new ResizeObserver(resized);
    observer.observe(element);
    return () => {
      stop.abort();
      observer.disconnect();
    };
  }, [scroller, resized, set]);

  return { following, follow, leave, resized };
}

/** Whether somebody types in it at this moment. */
function isTypedIn(element: HTMLElement): boolean {
  const { activeElement } = document;
  return activeElement instanceof HTMLTextAreaElement && element.contains(activeElement);
}
