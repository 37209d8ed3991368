package policies

import "smartswap/sim"

// Note is a line of a policy's diary, for reports. No decision depends on it.
type Note struct {
	Iteration int    // at whose end, or in which, it happened
	Event     string // what happened: the policy's own words, a fixed set
	Phase     string // of the policy, afterwards

	// Of a changed sequence, as the policy's detector saw it; see
	// profilers.Change.
	Length, Cosine float64
	Passes         int
	// Of a plan.
	Swaps int
	Bytes sim.Bytes
	// Why something could not be done.
	Error string
}

// NoteChanged is the event of a sequence found to have changed, under the same
// name in every policy: an alarm for profilers.Score.
const NoteChanged = "changed"

// Reporter is a Policy that keeps a diary.
type Reporter interface {
	// Notes lists what has happened so far, oldest first.
	Notes() []Note
}

// Alarms lists the iterations in which a diary notes a changed sequence.
func Alarms(notes []Note) []int {
	var at []int
	for i := range notes {
		if notes[i].Event == NoteChanged {
			at = append(at, notes[i].Iteration)
		}
	}
	return at
}
