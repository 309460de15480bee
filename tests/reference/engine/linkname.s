// Lets main.go declare a function whose body is elsewhere.
