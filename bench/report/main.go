// Command report turns the runs' reports into tables, medians throughout.
//
//	report bench/results/*.jsonl
package main

import (
	"log"
	"os"

	"github.com/holdfast-run/holdfast/bench/internal/tables"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: report FILE...")
	}
	if err := tables.Print(os.Stdout, os.Args[1:]...); err != nil {
		log.Fatal(err)
	}
}
