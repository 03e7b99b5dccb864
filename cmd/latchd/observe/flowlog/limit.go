package flowlog

import "time"

// bucket is a token bucket: so many a second, and a second's worth at once.
type bucket struct {
	tokens float64
	at     time.Time
}

func (b *bucket) take(now time.Time, rate float64) bool {
	if b.at.IsZero() {
		b.tokens = rate
	} else {
		b.tokens = min(rate, b.tokens+now.Sub(b.at).Seconds()*rate)
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// maxBuckets bounds what is remembered of pods. Pod ids are never used again.
const maxBuckets = 4096

// limiter limits lines, and the lines of one pod to half of that: one that floods must not hide the
// others.
type limiter struct {
	rate float64 // 0 = no limit
	all  bucket
	pods map[uint32]*bucket
}

func newLimiter(rate uint) *limiter { return &limiter{rate: float64(rate), pods: map[uint32]*bucket{}} }

func (l *limiter) allow(pod uint32, now time.Time) bool {
	if l.rate == 0 {
		return true
	}
	b := l.pods[pod]
	if b == nil {
		if len(l.pods) >= maxBuckets {
			clear(l.pods)
		}
		b = &bucket{}
		l.pods[pod] = b
	}
	return b.take(now, max(1, l.rate/2)) && l.all.take(now, l.rate)
}
