// Package simtest is a small world in which everything that can go wrong does,
// thousands of times, in virtual time.
//
// A history is one life of that world: a runtime on the memory store, several
// workers that each reach the store over a link of their own, readers, people,
// a model and tools. What will happen to it is a [plan], made of one seed: who
// writes what and when, when people cancel, edit and delete, at which write a
// worker dies, when one freezes and comes back, when the store cannot be
// reached, which wake-ups are lost, when the clock jumps. The histories run
// inside a testing/synctest bubble, so hours pass in milliseconds.
//
// In the end all faults heal, people decide what is open, and the world must
// come to rest. Then the promises are checked on what is left: on the log, which
// the world has kept a copy of from the first event on; on what the model was
// asked, what the tools did and what the readers saw, which nobody but the world
// has noted.
//
//	go test ./internal/simtest                    a few thousand histories
//	go test ./internal/simtest -histories=50000   more of them
//	go test ./internal/simtest -seed=42 -v        one history again, with its story
//
// A failure prints the seed and the story. One seed gives one plan; the runtime
// inside is concurrent, so two lives of one plan may differ in who was first at
// one instant. TestASeedMakesTheSameHistoryAgain says how rarely.
package simtest
