package sim

// Priority orders events of one instant: lower fires first. The constants are
// the only values in use; each says why it stands where it does.
type Priority uint8

// Priorities, first to last at one instant.
const (
	// PrioFinish: a device activity ends. First, so that whatever else
	// happens at this instant finds the engine free and its event complete.
	PrioFinish Priority = iota
	// PrioDevice: streams and engines look for their next work, after every
	// activity that ends now has ended.
	PrioDevice
	// PrioLaunch: a launching thread hands work to the device, before the
	// dispatching thread adds more behind it.
	PrioLaunch
	// PrioHost: a dispatching thread takes its next step; it sees the device
	// as it is after all of the above.
	PrioHost
	// PrioObserve: observers look; they change nothing.
	PrioObserve

	numPriorities
)

// Handler receives the events it was scheduled for.
type Handler interface {
	// Handle is called at the event's time. Stamp is what At returned for
	// it: an activity that has been re-timed compares it with the stamp of
	// its latest event and ignores the others.
	Handle(arg uint32, stamp Stamp)
}

// HandlerID is a registered handler.
type HandlerID uint32

// Stamp is an event's sequence number, unique in a run; 0 is never used.
type Stamp uint64
