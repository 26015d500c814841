//go:build !race

package simtest

const (
	defaultHistories = 2000
	raceDetector     = false
)
