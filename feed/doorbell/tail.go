package doorbell

// Tail is a bell that carries what was committed: its rings have the frames of
// sessions that are followed here, when it has them.
type Tail interface {
	Bell
	// Followed tells the bell which sessions are followed here, and how far each
	// is known. It is called before Run; followed must not block.
	Followed(followed func(session string) (head int64, ok bool))
}
