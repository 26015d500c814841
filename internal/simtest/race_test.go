//go:build race

package simtest

const (
	defaultHistories = 300
	raceDetector     = true
)
