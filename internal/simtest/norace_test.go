//go:build !race

package simtest

const (
	defaultHistories = 1500
	raceDetector     = false
)
