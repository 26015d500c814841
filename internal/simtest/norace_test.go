//go:build !race

package simtest

const (
	defaultHistories = 1200
	raceDetector     = false
)
