package attach

import "fmt"

// Other is a filter of kind bpf that is not ours.
type Other struct {
	Priority uint16 `json:"priority"`
	Handle   uint32 `json:"handle"`
	ProgID   uint32 `json:"programID"`
	Name     string `json:"name"`
}

// String is for messages.
func (o Other) String() string {
	return fmt.Sprintf("filter %s at priority %d handle %#x (program %d)", o.Name, o.Priority, o.Handle, o.ProgID)
}

// Others lists the filters of kind bpf on one side of an interface that are not ours, in the order in
// which they run. Returns an error that wraps ErrGone when there is no such interface.
func Others(ifindex int, s Side) ([]Other, error) {
	found, err := filtersOf(ifindex, s.hook())
	if err != nil {
		return nil, fmt.Errorf("list %s of interface %d: %w", s, ifindex, asGone(err))
	}
	var others []Other
	for _, f := range found {
		if f.prog != 0 && !f.ours {
			others = append(others, Other{Priority: f.priority, Handle: f.handle, ProgID: uint32(f.prog), Name: f.name})
		}
	}
	return others, nil
}

// Evict removes a filter of others from one side of an interface, and only when every packet of either
// side meets our program first: progs are the ids of ours. Else it returns an error that wraps
// ErrConflict, and the filter stays. A filter that is gone, or whose place holds another program by now,
// is left alone.
func Evict(ifindex int, s Side, o Other, progs map[Side]uint32) error {
	i, err := open(ifindex)
	if err != nil {
		return err
	}
	defer i.Close()
	for _, side := range Sides {
		st, err := i.Query(side, progs[side])
		if err != nil {
			return err
		}
		if !st.Effective {
			return fmt.Errorf("evict %s from %s of interface %d: %w: %s is not in force there", o, s, ifindex, ErrConflict, side)
		}
	}
	now, err := Others(ifindex, s)
	if err != nil {
		return err
	}
	for _, f := range now {
		if f != o {
			continue
		}
		if err := endFilter(ifindex, s.hook(), o.Priority, o.Handle); err != nil {
			return fmt.Errorf("evict %s from %s of interface %d: %w", o, s, ifindex, asGone(err))
		}
	}
	return nil
}

func filtersOf(ifindex int, h hook) ([]filter, error) {
	i, err := open(ifindex)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	return filters(i, h)
}

func endFilter(ifindex int, h hook, priority uint16, handle uint32) error {
	i, err := open(ifindex)
	if err != nil {
		return err
	}
	defer i.Close()
	return delFilter(i, h, priority, handle)
}
