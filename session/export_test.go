package session

import "slices"

// KnownTypes are the names of the event types that have a payload type.
func KnownTypes() []string {
	var names []string
	for name := range decoders {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
