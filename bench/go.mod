module smartswap/bench

go 1.26

replace smartswap => ../

require (
	github.com/fschuetz04/simgo v0.7.0
	github.com/sarchlab/akita/v4 v4.9.2
	smartswap v0.0.0-00010101000000-000000000000
)

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/rs/xid v1.6.0 // indirect
)
