package probe

// LastPort is the source port of the last round.
func (p *Prober) LastPort() uint16 { return p.last }
