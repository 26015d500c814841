//go:build race

package simtest

const (
	defaultHistories = 400
	raceDetector     = true
)
