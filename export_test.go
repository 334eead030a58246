package sqlherd

// NewOnStore is New with a store of the test's in place of Redis.
func NewOnStore(cfg Config, s any) (*Herd, error) {
	h, err := New(cfg)
	if err != nil {
		return nil, err
	}
	h.useStore(s.(sharedStore))
	h.cfg.Redis = nil
	return h, nil
}
