package probe

import (
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// send sends every probe, all sources at the same time.
func (r *round) send() error {
	bySource := map[*Endpoint][]int{}
	for i, q := range r.probes {
		bySource[q.From] = append(bySource[q.From], i)
	}
	var all errgroup.Group
	for from, indexes := range bySource {
		all.Go(func() error {
			return from.ns.Do(func() error { return r.sendFrom(from, indexes) })
		})
	}
	return all.Wait()
}

// sendFrom runs in the namespace of the source.
func (r *round) sendFrom(from *Endpoint, indexes []int) error {
	var udp int
	var err error
	for _, i := range indexes {
		q := r.probes[i]
		switch q.Proto {
		case TCP:
			err = r.connect(i)
		case UDP:
			if udp == 0 {
				if udp, err = r.clientUDP(from); err != nil {
					return err
				}
			}
			err = unix.Sendto(udp, []byte("latch probe"), 0, sockaddr(q.To.Addr, q.Port))
		case SCTP:
			err = unix.Sendto(from.sctp, sctpPacket(r.port, q.Port, 0, chunkInit), 0, sockaddr(q.To.Addr, 0))
		case ICMP:
			err = r.ping(q)
		default:
			err = r.sendRaw(q)
		}
		if err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// clientUDP opens the one socket that sends all UDP probes of a source.
func (r *round) clientUDP(from *Endpoint) (int, error) {
	fd, err := listenUDP(from.Addr, r.port)
	if err != nil {
		return -1, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.udp[from] = fd
	r.fds = append(r.fds, fd)
	return fd, nil
}

// connect starts a TCP handshake. All connections of a source share its port: their destinations
// tell them apart.
func (r *round) connect(i int) error {
	q := r.probes[i]
	fd, err := bound(q.From.Addr, r.port, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.fds = append(r.fds, fd)
	r.tcp[fd] = i
	r.mu.Unlock()
	if err := resetOnClose(fd); err != nil {
		return err
	}
	err = unix.Connect(fd, sockaddr(q.To.Addr, q.Port))
	if err == unix.EINPROGRESS {
		return nil
	}
	return err
}
